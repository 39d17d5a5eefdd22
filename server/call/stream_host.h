// StreamHost: the objects that all live calls share. Built by GrpcFront, constant while calls live.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/engine.h"
#include "engine/worker/shm/host_arena.h"
#include "server/call/front_options.h"
#include "server/call/serving_model.h"
#include "server/metrics/metrics.h"

namespace quire {

class ConnectionTable;
class SerialThread;
class SessionWatches;
class StallWatch;
class StreamTable;
class TextPool;

struct StreamHost {
  FrontOptions options;
  const ServingModel* model = nullptr;
  ServerMetrics* metrics = nullptr;
  Engine* engine = nullptr;
  ConnectionTable* connections = nullptr;
  StreamTable* table = nullptr;
  StallWatch* stalls = nullptr;
  TextPool* text_pool = nullptr;
  SerialThread* session_thread = nullptr;
  SessionWatches* watches = nullptr;
  HostArenas arenas;  // by rank; empty: no host memory
  int transfers = 0;  // exports and imports under way; the session thread's
  std::atomic<bool> draining{false};
  std::atomic<uint64_t> seed_key{0};  // requests without a seed get one mixed from it
};

}  // namespace quire
