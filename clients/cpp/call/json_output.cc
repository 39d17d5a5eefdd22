// The proto JSON mapping, one object a line.
#include "clients/cpp/call/json_output.h"

#include <google/protobuf/util/json_util.h>

namespace quire::cli {

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  return status.ok() ? json : "{}";
}

void PrintJson(const google::protobuf::Message& message, std::ostream& out) {
  out << ToJson(message) << "\n" << std::flush;
}

}  // namespace quire::cli
