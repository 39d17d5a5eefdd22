// WireCheck: finds why a message did not parse. The gRPC library answers a malformed message or
// invalid UTF-8 with UNIMPLEMENTED and no text; this walks the bytes along the descriptor and names
// the field.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace google::protobuf {
class Descriptor;
class Message;
}  // namespace google::protobuf
namespace grpc {
class ByteBuffer;
}

namespace quire {

// Parses `bytes`. INVALID_ARGUMENT (BadRequest) names the field that is not valid UTF-8, or where
// the message breaks. CANCELLED: the call's message never came.
absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);

// The first fault of bytes that do not parse as `type`.
absl::Status ExplainMalformed(std::string_view bytes, const google::protobuf::Descriptor& type);

// Length of the longest valid UTF-8 prefix.
size_t ValidUtf8Prefix(std::string_view text);

}  // namespace quire
