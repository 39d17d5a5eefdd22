// Sessions.Watch: sends a session's state, and then each change, until it is closed. A slow
// reader gets only the latest state, so the server keeps one state for it.
#pragma once

#include "server/call/raw_service.h"
#include "server/session/session_resources.h"

namespace quire {

// Handler for RawService; the reactor deletes itself. `resources` outlive every call.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartWatch(SessionResources* resources,
                                                       const IncomingCall& call,
                                                       const grpc::ByteBuffer* request);

}  // namespace quire
