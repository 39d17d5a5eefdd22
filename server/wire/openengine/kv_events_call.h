// openengine.v1.Control/SubscribeKvEvents: which KV blocks of the caller's tenant exist, as a
// stream of batches.
#pragma once

#include "server/call/raw_service.h"

namespace quire {

struct SessionResources;

// A handler for RawService; the reactors own themselves. `resources` outlive every call.
RawService::ServerStreaming OpenEngineKvEvents(SessionResources* resources);

}  // namespace quire
