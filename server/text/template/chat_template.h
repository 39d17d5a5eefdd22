// ChatTemplate: renders messages to a prompt with the checkpoint's Jinja template. Interprets the
// subset of Jinja that chat templates use, with limits on steps, depth, output and time. Never runs
// a template from a request. Immutable after Load; any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quire {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", ...
  std::string content;
};

class ChatTemplate {
 public:
  // Parses a template and renders a sample. INVALID_ARGUMENT names the unsupported construct.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Parse(const std::string& source,
                                                                   const std::string& bos_token,
                                                                   const std::string& eos_token);
  // Reads DIR/chat_template.jinja, or else chat_template in tokenizer_config.json. NOT_FOUND if the
  // model has none.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Load(const std::string& dir);
  ~ChatTemplate();

  // INVALID_ARGUMENT if the template calls raise_exception or exceeds a limit.
  absl::StatusOr<std::string> Render(const std::vector<ChatMessage>& messages,
                                     bool add_generation_prompt) const;

 private:
  struct Data;
  explicit ChatTemplate(std::unique_ptr<const Data> data);
  std::unique_ptr<const Data> data_;
};

}  // namespace quire
