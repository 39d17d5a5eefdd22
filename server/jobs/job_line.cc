// The line is parsed strictly first, so that protobuf's reader sees JSON of bounded depth and
// without duplicate keys.
#include "server/jobs/job_line.h"

#include <google/protobuf/util/json_util.h>

#include <utility>

#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "server/batch/item_status.h"
#include "server/call/status_codec.h"

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

absl::Status TakeCustomId(const nlohmann::json& object, JobLine* line) {
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

// Fields that a line cannot have. A line may run again after a crash, so it must change nothing.
absl::Status CheckFields(const v1::GenerateRequest& request) {
  if (request.has_session_id()) {
    return InvalidField("request.session_id",
                        "a line of a job may run twice, and a session keeps each turn; use "
                        "GenerateBatch");
  }
  if (request.has_priority()) {
    return InvalidField("request.priority", "is of the whole job: JobOptions.priority");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadJobLine(std::string_view text, JobLine* line) {
  const absl::StatusOr<nlohmann::json> object = ParseJson(text, "line", kLimits);
  if (!object.ok()) return InvalidField("line", Text(object.status().message()));
  if (!object->is_object()) return InvalidField("line", "is no JSON object");
  RETURN_IF_ERROR(TakeCustomId(*object, line));
  for (const auto& [key, value] : object->items()) {
    if (key != "custom_id" && key != "request") {
      return InvalidField("line",
                          "has the member " + Quoted(key) + "; a line has custom_id and request");
    }
  }
  const auto request = object->find("request");
  if (request == object->end()) return InvalidField("request", "missing");
  if (!request->is_object()) return InvalidField("request", "is no JSON object");
  const auto read =
      google::protobuf::util::JsonStringToMessage(request->dump(), &line->request, {});
  if (!read.ok()) {
    line->request.Clear();
    return InvalidField("request", Text(read.message()));
  }
  return CheckFields(line->request);
}

std::string WriteJobResult(const JobLine& line, const absl::StatusOr<std::string>& result) {
  std::string out =
      "{\"custom_id\":" + Quoted(line.custom_id) + ",\"line\":" + std::to_string(line.number);
  if (result.ok()) {
    v1::GenerateResult message;
    message.ParseFromString(*result);
    return out + ",\"result\":" + ToJson(message) + "}";
  }
  v1::ItemStatus status;
  FillItemStatus(result.status(), &status);
  return out + ",\"status\":" + ToJson(status) + "}";
}

}  // namespace quire
