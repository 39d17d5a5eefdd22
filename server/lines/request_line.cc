// The line is parsed strictly first, so that protobuf's reader sees JSON of bounded depth and
// without duplicate keys.
#include "server/lines/request_line.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <initializer_list>

#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "server/call/status_codec.h"
#include "server/lines/item_status.h"
#include "server/lines/json_parts.h"
#include "server/lines/openai_answer.h"

namespace quire {
namespace {

constexpr JsonLimits kLimits{
    .max_depth = 64, .max_bytes = size_t{8} << 20, .max_values = size_t{1} << 20};
constexpr size_t kMaxCustomId = 512;

std::string Text(const auto& message) { return std::string(message.data(), message.size()); }

std::string Quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  // It fails for invalid UTF-8 alone, which no message of ours holds.
  if (!google::protobuf::util::MessageToJsonString(message, &json, options).ok()) return "null";
  return json;
}

// The begin of a result.
std::string Head(const RequestLine& line) {
  return "{\"custom_id\":" + Quoted(line.custom_id) + ",\"line\":" + std::to_string(line.number) +
         ",";
}

absl::Status TakeCustomId(const nlohmann::json& object, RequestLine* line) {
  const auto id = object.find("custom_id");
  if (id == object.end()) return InvalidField("custom_id", "missing");
  if (!id->is_string()) return InvalidField("custom_id", "is no text");
  const auto& text = id->get_ref<const std::string&>();
  if (text.size() > kMaxCustomId) {
    return InvalidField("custom_id", "has " + std::to_string(text.size()) + " bytes; at most " +
                                         std::to_string(kMaxCustomId) + " are allowed");
  }
  line->custom_id = text;
  return absl::OkStatus();
}

// Refuses a line with a member that is not in `known`.
absl::Status CheckMembers(const nlohmann::json& object, std::initializer_list<const char*> known,
                          const std::string& what) {
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::none_of(known, [&key](const char* name) { return key == name; })) {
      return InvalidField("line", "has the member " + Quoted(key) + "; " + what);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadRequest(const nlohmann::json& object, RequestLine* line) {
  RETURN_IF_ERROR(
      CheckMembers(object, {"custom_id", "request"}, "a line has custom_id and request"));
  const auto request = object.find("request");
  if (request == object.end()) return InvalidField("request", "missing");
  if (!request->is_object()) return InvalidField("request", "is no JSON object");
  const auto read =
      google::protobuf::util::JsonStringToMessage(request->dump(), &line->request, {});
  if (read.ok()) return absl::OkStatus();
  line->request.Clear();
  return InvalidField("request", Text(read.message()));
}

bool IsOpenAi(const nlohmann::json& object) {
  return !object.contains("request") &&
         (object.contains("body") || object.contains("url") || object.contains("method"));
}

absl::Status ReadOpenAi(const nlohmann::json& object, std::string_view text, RequestLine* line) {
  RETURN_IF_ERROR(CheckMembers(object, {"custom_id", "method", "url", "body"},
                               "a line of this form has custom_id, method, url and body"));
  if (object.value("method", nlohmann::json()) != "POST") {
    return InvalidField("method", "must be \"POST\"");
  }
  const nlohmann::json url = object.value("url", nlohmann::json());
  if (url == "/v1/completions") {
    line->openai = OpenAiCall::kCompletion;
  } else if (url != "/v1/chat/completions") {
    return InvalidField("url", "must be \"/v1/chat/completions\" or \"/v1/completions\"");
  }
  const auto body = object.find("body");
  if (body == object.end()) return InvalidField("body", "missing");
  if (!body->is_object()) return InvalidField("body", "is no JSON object");
  return ReadOpenAiBody(*line->openai, *body, JsonMember(text, "body"), &line->request);
}

// Nullopt: it is longer than `max_bytes`.
std::optional<std::string> WriteResult(const RequestLine& line, const v1::GenerateResult& result,
                                       const Tokenizer* tokenizer, int64_t max_bytes) {
  if (line.openai.has_value()) {
    const OpenAiPlace place{line.number, line.custom_id, *line.openai};
    return WriteOpenAiAnswer(place, result, tokenizer, max_bytes);
  }
  std::string json = Head(line) + "\"result\":" + ToJson(result) + "}";
  if (static_cast<int64_t>(json.size()) > max_bytes) return std::nullopt;
  return json;
}

LineResult WriteFault(const RequestLine& line, const absl::Status& fault) {
  if (line.openai.has_value()) {
    const absl::Status named = WithOpenAiNames(*line.openai, fault);
    return {WriteOpenAiError({line.number, line.custom_id, *line.openai}, named), named};
  }
  v1::ItemStatus status;
  FillItemStatus(fault, &status);
  return {Head(line) + "\"status\":" + ToJson(status) + "}", fault};
}

}  // namespace

absl::Status ReadRequestLine(std::string_view text, RequestLine* line) {
  const absl::StatusOr<nlohmann::json> object = ParseJson(text, "JSON", kLimits);
  if (!object.ok()) return InvalidField("line", Text(object.status().message()));
  if (!object->is_object()) return InvalidField("line", "is no JSON object");
  if (IsOpenAi(*object)) line->openai = OpenAiCall::kChat;
  RETURN_IF_ERROR(TakeCustomId(*object, line));
  if (line->openai.has_value()) return ReadOpenAi(*object, text, line);
  return ReadRequest(*object, line);
}

LineResult WriteLineResult(const RequestLine& line, const absl::StatusOr<std::string>& result,
                           const Tokenizer* tokenizer, int64_t max_bytes) {
  if (!result.ok()) return WriteFault(line, result.status());
  v1::GenerateResult message;
  message.ParseFromString(*result);
  std::optional<std::string> json = WriteResult(line, message, tokenizer, max_bytes);
  if (json.has_value()) return {*std::move(json), absl::OkStatus()};
  return WriteFault(
      line, ReplyTooLarge(max_bytes, "ask for fewer answers or scores, or lower max_tokens"));
}

}  // namespace quire
