// ChatTemplate: renders messages to a prompt with the checkpoint's own Jinja template, by an
// interpreter of the subset that chat templates use, bounded in steps, depth, output and time.
// Never runs a template that came with a request. Immutable after Load; any thread.
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
  // Parses and dry-runs a template; INVALID_ARGUMENT names the construct that is not supported.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Parse(const std::string& source,
                                                                   const std::string& bos_token,
                                                                   const std::string& eos_token);
  // Reads DIR/chat_template.jinja or tokenizer_config.json's chat_template; NOT_FOUND when the
  // model has none.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Load(const std::string& dir);
  ~ChatTemplate();

  // INVALID_ARGUMENT when the template raises (raise_exception) or a limit is hit.
  absl::StatusOr<std::string> Render(const std::vector<ChatMessage>& messages,
                                     bool add_generation_prompt) const;

 private:
  struct Data;
  explicit ChatTemplate(std::unique_ptr<const Data> data);
  std::unique_ptr<const Data> data_;
};

}  // namespace quire
