// Several answers to one request: Generate and GenerateUnary with n or best_of above 1. Each answer
// is a request and a stream of its own; they enter the engine together (Engine::Submit), and share
// the KV of the prompt, the call's writer (SharedWriter) and its bound of unsent output. The
// failure of one ends the call.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "server/call/raw_service.h"
#include "server/generate/generate_resources.h"

namespace quire {

// Whether a GenerateRequest asks for more than one answer. Looks at the numbers of its fields only:
// bytes that are no such message are for the usual way to refuse.
bool AsksForSeveral(const grpc::ByteBuffer& request);

// Handlers that take such requests, and leave all others to `one`. `resources` outlive every call.
RawService::ServerStreaming StreamingAnswers(const GenerateResources* resources,
                                             RawService::ServerStreaming one);
RawService::Unary UnaryAnswers(const GenerateResources* resources, RawService::Unary one);

}  // namespace quire
