// CacheMetrics: the metrics of the prefix cache, of copies between device and host, and of
// sessions. Part of ServerMetrics; uses its registry.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace quire {

struct MetricRegistry;

class CacheMetrics {
 public:
  // `registry` outlives this.
  explicit CacheMetrics(MetricRegistry& registry);
  ~CacheMetrics();

  // Counts where one finished request found its KV, and how long after its arrival the first token
  // came; 0: none did. Any thread.
  void Found(const Residency& residency, double first_token_seconds);
  // Takes over the engine's counts before a scrape. One thread at a time.
  void Refresh(const EngineStats& stats);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
