// Renders a chat with one template.
#include "server/text/template/chat_template.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/interpreter.h"
#include "server/text/jinja/parser.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/jinja/values/text.h"

namespace quire {
namespace {

constexpr size_t kMaxTemplateBytes = 256 << 10;

absl::Status Fault(absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat("chat template: ", reason));
}

void SetVariable(const std::string& name, const jinja::Value& value, TemplateVariables* out) {
  const auto at = std::ranges::find(*out, name, &TemplateVariables::value_type::first);
  if (at != out->end()) {
    at->second = value;
  } else {
    out->emplace_back(name, value);
  }
}

// The text of the last message: its content, or the last part of it that has text.
absl::StatusOr<std::string> FinalText(const ChatInput& input) {
  const jinja::Value* content =
      input.messages.empty() ? nullptr : input.messages.back().dict().Find("content");
  if (content != nullptr && content->is_sequence()) {
    const jinja::List& parts = content->list();
    const auto has_text = [](const jinja::Value& part) {
      return part.is_dict() && part.dict().Find("text") != nullptr;
    };
    const auto last = std::find_if(parts.rbegin(), parts.rend(), has_text);
    content = last == parts.rend() ? nullptr : last->dict().Find("text");
  }
  if (content == nullptr || !content->is_string()) {
    return Fault("continue_final_message needs a last message with text");
  }
  return content->string();
}

// Cuts the prompt behind the last message, as transformers does.
absl::Status CutBehind(const std::string& final_text, std::string* prompt) {
  using jinja::Side;
  const std::string_view stripped = jinja::Strip(final_text, Side::kBoth);
  const size_t at = jinja::FindLast(*prompt, stripped);
  if (at == std::string::npos) {
    return Fault("continue_final_message: the template does not print the last message as it is");
  }
  // A template that keeps the text's last white space keeps it here too.
  const std::string_view open_end = jinja::Strip(final_text, Side::kLeft);
  const bool kept =
      std::string_view(*prompt).substr(at).starts_with(open_end) && open_end == final_text;
  prompt->resize(at + (kept ? open_end.size() : stripped.size()));
  return absl::OkStatus();
}

}  // namespace

jinja::Value TextMessage(const std::string& role, const std::string& content) {
  jinja::Dict message;
  message.Set("role", jinja::Value::Of(role));
  message.Set("content", jinja::Value::Of(content));
  return jinja::Value::Of(std::move(message));
}

struct ChatTemplate::Data {
  jinja::Block block;
  TemplateVariables constants;

  absl::StatusOr<jinja::Outcome> Run(const ChatInput& input) const {
    jinja::RunInput run;
    run.now = input.now;
    run.variables = constants;
    SetVariable("messages", jinja::Value::Of(input.messages), &run.variables);
    SetVariable("tools", input.tools, &run.variables);
    SetVariable("documents", input.documents, &run.variables);
    SetVariable("add_generation_prompt", jinja::Value::Of(input.add_generation_prompt),
                &run.variables);
    for (const auto& [name, value] : input.variables) SetVariable(name, value, &run.variables);
    return jinja::Run(block, std::move(run));
  }
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<const ChatTemplate>> ChatTemplate::Parse(
    const std::string& source, TemplateVariables constants) {
  if (source.size() > kMaxTemplateBytes) {
    return Fault(absl::StrCat(source.size(), " bytes; the limit is ", kMaxTemplateBytes));
  }
  auto data = std::make_unique<Data>();
  data->constants = std::move(constants);
  absl::StatusOr<jinja::Block> block = jinja::Parse(source);
  if (!block.ok()) return Fault(block.status().message());
  data->block = *std::move(block);
  return std::unique_ptr<const ChatTemplate>(new ChatTemplate(std::move(data)));
}

absl::Status ChatTemplate::Try() const {
  ChatInput sample;
  sample.messages.push_back(TextMessage("user", "Hello"));
  const auto outcome = data_->Run(sample);
  return outcome.ok() ? absl::OkStatus() : Fault(outcome.status().message());
}

absl::StatusOr<std::string> ChatTemplate::Render(const ChatInput& input) const {
  auto outcome = data_->Run(input);
  if (!outcome.ok()) return Fault(outcome.status().message());
  if (outcome->raised) return Fault(outcome->text);
  if (input.continue_final_message) {
    ASSIGN_OR_RETURN(const std::string final_text, FinalText(input));
    RETURN_IF_ERROR(CutBehind(final_text, &outcome->text));
  }
  return std::move(outcome->text);
}

}  // namespace quire
