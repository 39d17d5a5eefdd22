// The gRPC ends of generating calls, in any protocol: reactors that translate between the library's
// callbacks and a GenerationStream, and hold no state of their own.
#pragma once

#include "server/call/raw_service.h"
#include "server/generate/generate_resources.h"
#include "server/generate/wire_format.h"

namespace quire {

struct GenerateMethod {
  const char* name;  // in metrics and traces; a literal
  MakeWireFormat make_format;
};

// Handlers for RawService; the reactors delete themselves. `resources` outlive every call.
RawService::ServerStreaming StreamingGenerate(const GenerateResources* resources,
                                              GenerateMethod method);
RawService::Unary UnaryGenerate(const GenerateResources* resources, GenerateMethod method);

}  // namespace quire
