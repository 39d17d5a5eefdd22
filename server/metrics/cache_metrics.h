// CacheMetrics: where the KV of prompts was found, what moves between device and host, and the
// sessions that keep it. A part of ServerMetrics, in its registry.
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

  // What one finished request had found. Any thread.
  void Found(const Residency& residency);
  // The engine's own counts, before a scrape. One thread at a time.
  void Refresh(const EngineStats& stats);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
