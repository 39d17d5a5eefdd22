// Control.Trace: records the timeline for some seconds and sends it as a file in chunks. One call
// records at a time.
#pragma once

#include "server/call/raw_service.h"
#include "server/session/session_resources.h"

namespace quire {

// Handler for RawService; the reactor deletes itself. `resources` outlive every call.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartTrace(SessionResources* resources,
                                                       const IncomingCall& call,
                                                       const grpc::ByteBuffer* request);

}  // namespace quire
