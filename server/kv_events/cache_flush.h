// FlushCache for any protocol: drops KV of the prefix cache and brings the answer back from the
// scheduler thread.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "engine/values/kv_events.h"

namespace quire {

struct SessionResources;

// Calls `done` exactly once: on the session thread with the answer, or, when the engine ends first,
// on any thread with UNAVAILABLE (DRAINING). Any thread; never blocks.
void FlushCache(SessionResources& resources, const CacheFlush& flush,
                std::function<void(const absl::StatusOr<FlushedCache>&)> done);

}  // namespace quire
