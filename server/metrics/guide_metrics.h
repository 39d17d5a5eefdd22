// GuideMetrics: the metrics of structured outputs: grammars compiled and cached, masks made. Part
// of ServerMetrics; uses its registry. Any thread, Refresh aside.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/masks/mask_stats.h"

namespace quire {

struct MetricRegistry;

class GuideMetrics {
 public:
  // `registry` outlives this.
  explicit GuideMetrics(MetricRegistry& registry);
  ~GuideMetrics();

  // A request's grammar was compiled, or refused, in that time; or it was cached.
  void Compiled(bool ok, double seconds);
  void Found();
  // The cache holds so many bytes.
  void CacheHolds(size_t bytes);
  // Sets the totals of masks. One thread at a time.
  void Refresh(const MaskStats& stats);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
