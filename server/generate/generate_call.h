// The gRPC ends of Generate and GenerateUnary: reactors that translate between the library's
// callbacks and a GenerationStream, and hold no state of their own.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/call/raw_service.h"
#include "server/call/stream_host.h"

namespace quire {

// Handlers for RawService; the reactors delete themselves. `host` outlives every call.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGenerate(StreamHost* host,
                                                          grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request);
grpc::ServerUnaryReactor* StartGenerateUnary(StreamHost* host, grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response);

}  // namespace quire
