// ChatTemplate: renders messages to a prompt with a Jinja template of the checkpoint, as jinja2
// does in transformers, with limits on steps, depth, output and time. Never runs a template from a
// request. Immutable after Parse; any thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/text/jinja/values/value.h"

namespace quire {

using TemplateVariables = std::vector<std::pair<std::string, jinja::Value>>;

// A chat as the template sees it. Strings must be valid UTF-8.
struct ChatInput {
  jinja::List messages;  // dicts
  jinja::Value tools = jinja::Value::MakeNone();
  jinja::Value documents = jinja::Value::MakeNone();
  TemplateVariables variables;  // further ones; they replace those above
  bool add_generation_prompt = true;
  // End the prompt with the last message's content, so that the model goes on with it.
  bool continue_final_message = false;
  absl::Time now = absl::UnixEpoch();  // that strftime_now tells, in the process's time zone
};

// A message of text.
jinja::Value TextMessage(const std::string& role, const std::string& content);

class ChatTemplate {
 public:
  // `constants` are variables of every chat: the special tokens. INVALID_ARGUMENT names line,
  // column and construct.
  static absl::StatusOr<std::unique_ptr<const ChatTemplate>> Parse(const std::string& source,
                                                                   TemplateVariables constants);
  ~ChatTemplate();

  // INVALID_ARGUMENT if the template calls raise_exception, fails or exceeds a limit.
  absl::StatusOr<std::string> Render(const ChatInput& input) const;
  // Whether a chat of one message renders; a template may raise on it.
  absl::Status Try() const;

 private:
  struct Data;
  explicit ChatTemplate(std::unique_ptr<const Data> data);
  std::unique_ptr<const Data> data_;
};

}  // namespace quire
