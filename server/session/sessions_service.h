// quire.v1.Sessions. Every call runs on the scheduler thread, between two steps, as a function of
// the session store (Engine::Ask); its bytes are read and its answer is written elsewhere.
#pragma once

#include <memory>

#include "server/call/raw_service.h"
#include "server/call/stream_host.h"

namespace quire {

// `host` outlives the service.
std::unique_ptr<RawService> MakeSessionsService(StreamHost* host);

}  // namespace quire
