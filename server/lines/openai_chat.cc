// Members beside role and content go on to the template as they are written. Arguments of calls are
// a text here and an object for templates.
#include "server/lines/openai_chat.h"

#include <string>
#include <vector>

#include "engine/base/status_macros.h"
#include "server/call/status_codec.h"
#include "server/lines/json_parts.h"
#include "server/text/template/json_value.h"

namespace quire {
namespace {

// The members of an object of JSON, one after the other.
class ObjectText {
 public:
  void Add(const std::string& key, std::string_view value) {
    text_ += (text_.empty() ? "{" : ",") + nlohmann::json(key).dump() + ":";
    text_ += value;
  }
  bool empty() const { return text_.empty(); }
  std::string Take() { return empty() ? "{}" : text_ + "}"; }

 private:
  std::string text_;
};

OpenAiMember MemberOf(const OpenAiMember& object, const JsonPart& part) {
  return {object.path + "." + part.key, object.value.at(part.key), part.text};
}

// The members of an object without those that are null: these count as left out.
std::vector<JsonPart> MembersOf(const OpenAiMember& object) {
  std::vector<JsonPart> parts = SplitJson(object.text);
  std::erase_if(parts, [](const JsonPart& part) { return part.text == "null"; });
  return parts;
}

std::vector<OpenAiMember> ElementsOf(const OpenAiMember& list) {
  std::vector<OpenAiMember> elements;
  for (const JsonPart& part : SplitJson(list.text)) {
    const size_t i = elements.size();
    elements.push_back({list.path + "[" + std::to_string(i) + "]", list.value[i], part.text});
  }
  return elements;
}

// --- Calls of an assistant's message.

absl::StatusOr<std::string> ArgumentsOf(const OpenAiMember& member) {
  ASSIGN_OR_RETURN(std::string text, ReadText(member));
  const absl::StatusOr<nlohmann::json> json =
      ParseJson(text, member.path,
                {.max_depth = kRequestJson.max_depth, .max_values = kRequestJson.max_values});
  if (json.ok() && json->is_object()) return text;
  return InvalidField(member.path, "must be the text of a JSON object");
}

absl::StatusOr<std::string> FunctionOf(const OpenAiMember& function) {
  RETURN_IF_ERROR(CheckObject(function));
  ObjectText out;
  for (const JsonPart& part : MembersOf(function)) {
    const OpenAiMember member = MemberOf(function, part);
    if (part.key == "arguments") {
      ASSIGN_OR_RETURN(const std::string arguments, ArgumentsOf(member));
      out.Add(part.key, arguments);
    } else if (part.key == "name") {
      RETURN_IF_ERROR(ReadText(member).status());
      out.Add(part.key, part.text);
    } else {
      return UnknownMember(member.path);
    }
  }
  return out.Take();
}

absl::StatusOr<std::string> CallOf(const OpenAiMember& call) {
  RETURN_IF_ERROR(CheckObject(call));
  ObjectText out;
  for (const JsonPart& part : MembersOf(call)) {
    const OpenAiMember member = MemberOf(call, part);
    if (part.key == "function") {
      ASSIGN_OR_RETURN(const std::string function, FunctionOf(member));
      out.Add(part.key, function);
    } else if (part.key == "type" && member.value != "function") {
      return InvalidField(member.path, "must be \"function\"");
    } else if (part.key == "type" || part.key == "id") {
      out.Add(part.key, part.text);
    } else {
      return UnknownMember(member.path);
    }
  }
  return out.Take();
}

absl::StatusOr<std::string> CallsOf(const OpenAiMember& member) {
  RETURN_IF_ERROR(CheckList(member));
  std::string out;
  for (const OpenAiMember& element : ElementsOf(member)) {
    ASSIGN_OR_RETURN(const std::string call, CallOf(element));
    out += (out.empty() ? "" : ",") + call;
  }
  return "[" + out + "]";
}

// --- Messages.

absl::StatusOr<std::string> TextOfPart(const OpenAiMember& part) {
  RETURN_IF_ERROR(CheckObject(part));
  std::string text;
  bool has_type = false, has_text = false;
  for (const JsonPart& each : MembersOf(part)) {
    const OpenAiMember member = MemberOf(part, each);
    if (each.key == "type" && member.value == "text") {
      has_type = true;
    } else if (each.key == "type") {
      return InvalidField(member.path, "must be \"text\": this server takes text alone");
    } else if (each.key == "text") {
      ASSIGN_OR_RETURN(text, ReadText(member));
      has_text = true;
    } else {
      return UnknownMember(member.path);
    }
  }
  if (!has_type) return InvalidField(part.path + ".type", "missing");
  if (!has_text) return InvalidField(part.path + ".text", "missing");
  return text;
}

// Parts become lines of one text, because many templates take no list.
absl::StatusOr<std::string> ContentOf(const OpenAiMember& content) {
  if (content.value.is_string()) return content.value.get<std::string>();
  if (!content.value.is_array()) {
    return InvalidField(content.path, "must be a text, null or a list of text parts");
  }
  std::string all;
  for (const OpenAiMember& part : ElementsOf(content)) {
    ASSIGN_OR_RETURN(const std::string text, TextOfPart(part));
    all += (&part.value == &content.value.front() ? "" : "\n") + text;
  }
  return all;
}

absl::Status ReadMessage(const OpenAiMember& message, v1::ChatMessage* out) {
  RETURN_IF_ERROR(CheckObject(message));
  ObjectText members;
  for (const JsonPart& part : MembersOf(message)) {
    const OpenAiMember member = MemberOf(message, part);
    if (part.key == "role") {
      ASSIGN_OR_RETURN(*out->mutable_role(), ReadText(member));
    } else if (part.key == "content") {
      ASSIGN_OR_RETURN(*out->mutable_content(), ContentOf(member));
    } else if (part.key == "tool_calls") {
      ASSIGN_OR_RETURN(const std::string calls, CallsOf(member));
      members.Add(part.key, calls);
    } else if (part.key == "name" || part.key == "tool_call_id" ||
               part.key == "reasoning_content") {
      RETURN_IF_ERROR(ReadText(member).status());
      members.Add(part.key, part.text);
    } else {
      return UnknownMember(member.path);
    }
  }
  // Templates tell an empty content from none.
  if (!out->has_content()) members.Add("content", "null");
  if (!members.empty()) out->set_members(members.Take());
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadMessages(const OpenAiMember& member, v1::GenerateRequest* request) {
  RETURN_IF_ERROR(CheckList(member));
  v1::ChatMessages& chat = *request->mutable_chat();
  for (const OpenAiMember& message : ElementsOf(member)) {
    RETURN_IF_ERROR(ReadMessage(message, chat.add_messages()));
  }
  return absl::OkStatus();
}

absl::Status ReadTools(const OpenAiMember& member, v1::GenerateRequest* request) {
  RETURN_IF_ERROR(CheckList(member));
  for (const OpenAiMember& tool : ElementsOf(member)) {
    RETURN_IF_ERROR(CheckObject(tool));
    if (tool.value.value("type", nlohmann::json()) != "function") {
      return InvalidField(tool.path + ".type", "must be \"function\"");
    }
    request->mutable_chat()->add_tools(std::string(tool.text));
  }
  return absl::OkStatus();
}

absl::Status ReadToolChoice(const OpenAiMember& member, v1::GenerateRequest* request) {
  v1::ToolChoice& choice = *request->mutable_chat()->mutable_tool_choice();
  if (member.value == "none") {
    choice.set_mode(v1::ToolChoice::MODE_NONE);
  } else if (member.value == "auto") {
    choice.set_mode(v1::ToolChoice::MODE_AUTO);
  } else if (member.value == "required") {
    choice.set_mode(v1::ToolChoice::MODE_REQUIRED);
  } else {
    const auto name = nlohmann::json::json_pointer("/function/name");
    const bool named = member.value.is_object() && MembersOf(member).size() == 2 &&
                       member.value.value("type", nlohmann::json()) == "function" &&
                       member.value.contains(name) && member.value.at(name).is_string();
    if (!named) {
      return InvalidField(member.path,
                          "must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", "
                          "\"function\": {\"name\": ...}}");
    }
    choice.set_mode(v1::ToolChoice::MODE_FUNCTION);
    choice.set_function(member.value.at(name).get<std::string>());
  }
  return absl::OkStatus();
}

}  // namespace quire
