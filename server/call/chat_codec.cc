// Checks the fields of a chat and gives them to its template.
#include "server/call/chat_codec.h"

#include <utility>

#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/template/json_value.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

constexpr int kMaxMessages = 4096;
constexpr int kMaxTools = 1024;
constexpr int kMaxDocuments = 4096;
constexpr size_t kMaxKwargs = 256;  // variables of a template, which it looks up one by one
// A year of four digits.
constexpr int64_t kFirstSecond = -62'135'596'800, kLastSecond = 253'402'300'799;

std::string Text(absl::string_view text) { return std::string(text.data(), text.size()); }

std::string Indexed(const std::string& field, int i) {
  return field + "[" + std::to_string(i) + "]";
}

// A field that is a JSON object.
absl::StatusOr<jinja::Value> ReadObject(const std::string& json, const std::string& field) {
  absl::StatusOr<jinja::Value> value = ReadJsonValue(json, field);
  if (!value.ok()) {
    return InvalidField(field, Text(absl::StripPrefix(value.status().message(), field + ": ")));
  }
  if (!value->is_dict()) return InvalidField(field, "must be a JSON object, {...}");
  return value;
}

absl::Status CheckUtf8(const std::string& text, const std::string& field) {
  if (FindInvalidUtf8(text) == std::string::npos) return absl::OkStatus();
  return InvalidField(field, "is not valid UTF-8");
}

absl::StatusOr<jinja::Value> DecodeMessage(const v1::ChatMessage& message,
                                           const std::string& field) {
  if (message.role().empty()) {
    return InvalidField(field + ".role", "missing; say \"user\", \"assistant\" or \"system\"");
  }
  RETURN_IF_ERROR(CheckUtf8(message.role(), field + ".role"));
  RETURN_IF_ERROR(CheckUtf8(message.content(), field + ".content"));
  jinja::Dict members;
  members.Set("role", jinja::Value::Of(message.role()));
  jinja::Value more = jinja::Value::Of(jinja::Dict());
  if (message.has_members()) {
    ASSIGN_OR_RETURN(more, ReadObject(message.members(), field + ".members"));
  }
  const bool has_content = more.dict().Find("content") != nullptr;
  if (more.dict().Find("role") != nullptr || (has_content && message.has_content())) {
    return InvalidField(field + ".members",
                        "repeats role or content, which have fields of their own");
  }
  if (!has_content) members.Set("content", jinja::Value::Of(message.content()));
  for (const auto& [name, value] : more.dict()) members.Set(name, value);
  return jinja::Value::Of(std::move(members));
}

// None where the request has no such objects, as transformers gives it to templates.
template <class Texts>
absl::StatusOr<jinja::Value> DecodeObjects(const Texts& texts, const std::string& field) {
  if (texts.empty()) return jinja::Value::MakeNone();
  jinja::List objects;
  for (int i = 0; i < texts.size(); ++i) {
    ASSIGN_OR_RETURN(jinja::Value object, ReadObject(texts[i], Indexed(field, i)));
    objects.push_back(std::move(object));
  }
  return jinja::Value::Of(std::move(objects));
}

absl::Status DecodeKwargs(const std::string& json, ChatInput* input) {
  const std::string field = "chat.template_kwargs";
  ASSIGN_OR_RETURN(const jinja::Value kwargs, ReadObject(json, field));
  if (kwargs.dict().size() > kMaxKwargs) {
    return InvalidField(field, "must have at most " + std::to_string(kMaxKwargs) +
                                   " members, not " + std::to_string(kwargs.dict().size()));
  }
  for (const auto& [name, value] : kwargs.dict()) {
    for (const char* own : {"messages", "tools", "documents"}) {
      if (name.string() == own) {
        return InvalidField(field, std::string("'") + own + "' has a field of its own in chat");
      }
    }
    input->variables.emplace_back(name.string(), value);
  }
  return absl::OkStatus();
}

absl::Status DecodeEnd(const v1::ChatMessages& chat, ChatInput* input) {
  input->continue_final_message = chat.continue_final_message();
  input->add_generation_prompt = chat.has_add_generation_prompt() ? chat.add_generation_prompt()
                                                                  : !chat.continue_final_message();
  if (input->continue_final_message && input->add_generation_prompt) {
    return InvalidField("chat.continue_final_message",
                        "continues the last message, and add_generation_prompt begins another; "
                        "set one of the two");
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Time> DecodeTime(const v1::ChatMessages& chat) {
  if (!chat.has_template_time()) return absl::Now();
  const auto& time = chat.template_time();
  if (time.seconds() < kFirstSecond || time.seconds() > kLastSecond || time.nanos() < 0 ||
      time.nanos() > 999'999'999) {
    return InvalidField("chat.template_time", "must be between the years 1 and 9999");
  }
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

// Whether the template is shown the tools.
bool ShowsTools(const v1::ChatMessages& chat) {
  return chat.tools_size() > 0 && chat.tool_choice().mode() != v1::ToolChoice::MODE_NONE;
}

absl::StatusOr<const ChatTemplate*> ChooseTemplate(const v1::ChatMessages& chat,
                                                   const ChatTemplates& templates) {
  RETURN_IF_ERROR(CheckUtf8(chat.template_name(), "chat.template_name"));
  const auto chosen = templates.Choose(chat.template_name(), ShowsTools(chat));
  if (chosen.ok()) return chosen;
  const std::string reason = Text(chosen.status().message());
  const bool named = chat.has_template_name() && absl::IsNotFound(chosen.status());
  if (named) return InvalidField("chat.template_name", reason);
  return Refusal(absl::StatusCode::kFailedPrecondition, "NO_CHAT_TEMPLATE",
                 "chat: " + reason + "; send text or token_ids");
}

absl::Status CheckCount(int count, int limit, const std::string& field) {
  if (count <= limit) return absl::OkStatus();
  return InvalidField(
      field, "must have at most " + std::to_string(limit) + ", not " + std::to_string(count));
}

}  // namespace

absl::Status CheckChat(const v1::ChatMessages& chat, const ChatTemplates& templates) {
  RETURN_IF_ERROR(ChooseTemplate(chat, templates).status());
  if (chat.messages_size() < 1 || chat.messages_size() > kMaxMessages) {
    return InvalidField("chat.messages", "must have 1 to 4096 messages, not " +
                                             std::to_string(chat.messages_size()));
  }
  RETURN_IF_ERROR(CheckCount(chat.tools_size(), kMaxTools, "chat.tools"));
  RETURN_IF_ERROR(CheckCount(chat.documents_size(), kMaxDocuments, "chat.documents"));
  ChatInput input;
  RETURN_IF_ERROR(DecodeEnd(chat, &input));
  return DecodeTime(chat).status();
}

absl::StatusOr<DecodedChat> DecodeChat(const v1::ChatMessages& chat,
                                       const ChatTemplates& templates) {
  RETURN_IF_ERROR(CheckChat(chat, templates));
  DecodedChat out;
  ASSIGN_OR_RETURN(out.chat_template, ChooseTemplate(chat, templates));
  for (int i = 0; i < chat.messages_size(); ++i) {
    ASSIGN_OR_RETURN(jinja::Value message,
                     DecodeMessage(chat.messages(i), Indexed("chat.messages", i)));
    out.input.messages.push_back(std::move(message));
  }
  ASSIGN_OR_RETURN(out.input.tools, DecodeObjects(chat.tools(), "chat.tools"));
  if (!ShowsTools(chat)) out.input.tools = jinja::Value::MakeNone();
  ASSIGN_OR_RETURN(out.input.documents, DecodeObjects(chat.documents(), "chat.documents"));
  if (chat.has_template_kwargs()) {
    RETURN_IF_ERROR(DecodeKwargs(chat.template_kwargs(), &out.input));
  }
  RETURN_IF_ERROR(DecodeEnd(chat, &out.input));
  ASSIGN_OR_RETURN(out.input.now, DecodeTime(chat));
  return out;
}

absl::StatusOr<std::string> RenderChat(const DecodedChat& chat) {
  absl::StatusOr<std::string> text = chat.chat_template->Render(chat.input);
  if (text.ok()) return text;
  return InvalidField("chat", Text(text.status().message()));
}

}  // namespace quire
