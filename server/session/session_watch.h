// Sessions.Watch: a session now, and then each change of it, until it is closed. A reader that is
// behind is told the latest only: what is kept for it is one session's state.
#pragma once

#include "server/call/raw_service.h"
#include "server/call/stream_host.h"

namespace quire {

// Handler for RawService; the reactor deletes itself. `host` outlives every call.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartWatch(StreamHost* host,
                                                       grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request);

}  // namespace quire
