// UnknownFields: refuses messages of other projects' protocols that have fields this server does
// not know. Protobuf keeps such fields silently, so a client with a newer .proto would believe that
// they were honoured.
#pragma once

#include "absl/status/status.h"

namespace google::protobuf {
class Message;
}
namespace grpc {
class ByteBuffer;
}

namespace quire {

// INVALID_ARGUMENT (BadRequest) names the first unknown field by its path and number:
// "inputs[2].field number 9". Looks into all nested messages. Any thread.
absl::Status CheckNoUnknownFields(const google::protobuf::Message& message);

// ParseMessage (server/call/wire_check.h), then CheckNoUnknownFields. The parser of every request
// in server/wire/.
absl::Status ParseKnownFields(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);

}  // namespace quire
