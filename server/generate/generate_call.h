// The gRPC ends of Generate and GenerateUnary: reactors that translate between the library's
// callbacks and a GenerationStream, and hold no state of their own.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/call/raw_service.h"
#include "server/generate/generate_resources.h"

namespace quire {

// Handlers for RawService; the reactors delete themselves. `resources` outlive every call.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartGenerate(const GenerateResources* resources,
                                                          grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request);
grpc::ServerUnaryReactor* StartGenerateUnary(const GenerateResources* resources,
                                             grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response);

}  // namespace quire
