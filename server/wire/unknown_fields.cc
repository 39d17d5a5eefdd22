// A walk over the fields that are set; the parser has bounded their depth.
#include "server/wire/unknown_fields.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <string>
#include <vector>

#include "engine/base/status_macros.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"

namespace quire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::UnknownFieldSet;

std::string Join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

absl::Status Walk(const Message& message, const std::string& path) {
  const Reflection* reflection = message.GetReflection();
  const UnknownFieldSet& unknown = reflection->GetUnknownFields(message);
  if (!unknown.empty()) {
    const std::string number = std::to_string(unknown.field(0).number());
    return InvalidField(Join(path, "field number " + number),
                        "this server does not know the field; leave it out");
  }
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const std::string name = Join(path, field->name());
    if (!field->is_repeated()) {
      RETURN_IF_ERROR(Walk(reflection->GetMessage(message, field), name));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      RETURN_IF_ERROR(Walk(reflection->GetRepeatedMessage(message, field, i),
                           name + "[" + std::to_string(i) + "]"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNoUnknownFields(const Message& message) { return Walk(message, ""); }

absl::Status ParseKnownFields(const grpc::ByteBuffer& bytes, Message* message) {
  RETURN_IF_ERROR(ParseMessage(bytes, message));
  return CheckNoUnknownFields(*message);
}

}  // namespace quire
