// VllmGenerate: the reactor of VllmEngine.Generate. A request for n outputs is n streams of the
// server behind one call. The others start with the first one's first token, so that they find the
// prompt's KV in the prefix cache.
#pragma once

#include "server/call/raw_service.h"
#include "server/generate/generate_resources.h"

namespace quire {

// Handler for RawService; the reactor deletes itself. `resources` outlive every call.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartVllmGenerate(const GenerateResources* resources,
                                                              const IncomingCall& call,
                                                              const grpc::ByteBuffer* request);

}  // namespace quire
