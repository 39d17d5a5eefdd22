// JSON keeps the order of its members, because templates print them in that order.
#include "clients/cpp/call/chat_request.h"

#include <google/protobuf/util/time_util.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostDeep = 64;  // lists and objects within each other; servers take fewer

absl::Status Fault(const std::string& place, const std::string& reason) {
  return absl::InvalidArgumentError(absl::StrCat(place, ": ", reason));
}

// The list of objects in a file; an empty one without a file. `place` becomes the flag with the
// file's name.
absl::StatusOr<Json> ReadObjects(const std::optional<std::string>& path, std::string* place) {
  if (!path) return Json::array();
  absl::StrAppend(place, " ", *path);
  std::error_code error;
  std::ifstream file(*path, std::ios::binary);
  // A read of a directory throws.
  if (!file || std::filesystem::is_directory(*path, error)) return Fault(*place, "cannot be read");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  bool deep = false;
  const auto look = [&deep](int depth, Json::parse_event_t, Json&) {
    deep = deep || depth > kMostDeep;
    return !deep;
  };
  Json list = Json::parse(text, look, /*allow_exceptions=*/false);
  if (deep) return Fault(*place, absl::StrCat("is nested deeper than ", kMostDeep));
  if (list.is_discarded()) return Fault(*place, "not JSON; check commas, quotes and braces");
  if (!list.is_array()) return Fault(*place, "must be a JSON list, [{...}, ...]");
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object()) return Fault(absl::StrCat(*place, ": entry ", i), "is no object");
  }
  return list;
}

template <class Objects>
absl::Status AddObjects(const std::optional<std::string>& path, std::string flag, Objects* out) {
  const absl::StatusOr<Json> list = ReadObjects(path, &flag);
  if (!list.ok()) return list.status();
  for (const Json& object : *list) *out->Add() = object.dump();
  return absl::OkStatus();
}

// Role and a content of text have fields; everything else travels as JSON.
absl::Status AddMessage(Json message, const std::string& place, v1::ChatMessages* chat) {
  v1::ChatMessage* out = chat->add_messages();
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) {
    return Fault(place, "has no role; say \"user\", \"assistant\" or another");
  }
  out->set_role(role->get<std::string>());
  message.erase("role");
  const auto content = message.find("content");
  if (content != message.end() && content->is_string()) {
    out->set_content(content->get<std::string>());
    message.erase("content");
  }
  if (!message.empty()) out->set_members(message.dump());
  return absl::OkStatus();
}

absl::Status AddMessages(const ChatFlags& flags, v1::ChatMessages* chat) {
  std::string place = "--messages";
  const absl::StatusOr<Json> list = ReadObjects(flags.messages, &place);
  if (!list.ok()) return list.status();
  for (size_t i = 0; i < list->size(); ++i) {
    const absl::Status added = AddMessage((*list)[i], absl::StrCat(place, ": message ", i), chat);
    if (!added.ok()) return added;
  }
  return absl::OkStatus();
}

void SetToolChoice(const std::string& choice, v1::ToolChoice* out) {
  if (choice == "auto") return out->set_mode(v1::ToolChoice::MODE_AUTO);
  if (choice == "none") return out->set_mode(v1::ToolChoice::MODE_NONE);
  if (choice == "required") return out->set_mode(v1::ToolChoice::MODE_REQUIRED);
  out->set_mode(v1::ToolChoice::MODE_FUNCTION);
  out->set_function(choice);
}

absl::Status SetTemplate(const ChatFlags& flags, v1::ChatMessages* chat) {
  if (flags.tool_choice) SetToolChoice(*flags.tool_choice, chat->mutable_tool_choice());
  if (flags.template_kwargs) chat->set_template_kwargs(*flags.template_kwargs);
  if (flags.template_name) chat->set_template_name(*flags.template_name);
  if (flags.template_time && !google::protobuf::util::TimeUtil::FromString(
                                 *flags.template_time, chat->mutable_template_time())) {
    return Fault("--template-time " + *flags.template_time,
                 "write it as 2026-01-31T09:00:00Z or with +01:00 for Z");
  }
  if (!flags.generation_prompt) chat->set_add_generation_prompt(false);
  if (flags.continue_final_message) chat->set_continue_final_message(true);
  return absl::OkStatus();
}

}  // namespace

bool IsChat(const PromptFlags& flags) {
  return flags.chat || flags.system.has_value() || OfAChat(flags.template_flags);
}

bool TakesText(const PromptFlags& flags) {
  if (!flags.token_ids.empty()) return false;
  return flags.text.has_value() || !flags.template_flags.messages;
}

absl::StatusOr<v1::ChatMessages> ReadChat(const PromptFlags& flags) {
  v1::ChatMessages chat;
  if (flags.system) {
    v1::ChatMessage* system = chat.add_messages();
    system->set_role("system");
    system->set_content(*flags.system);
  }
  const ChatFlags& given = flags.template_flags;
  absl::Status read = AddMessages(given, &chat);
  read.Update(AddObjects(given.tools, "--tools", chat.mutable_tools()));
  read.Update(AddObjects(given.documents, "--documents", chat.mutable_documents()));
  read.Update(SetTemplate(given, &chat));
  if (!read.ok()) return read;
  return chat;
}

void AddUserMessage(const std::string& text, v1::ChatMessages* chat) {
  v1::ChatMessage* user = chat->add_messages();
  user->set_role("user");
  user->set_content(text);
}

}  // namespace quire::cli
