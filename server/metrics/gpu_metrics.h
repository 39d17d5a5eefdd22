// GpuMetrics: the metrics quire_gpu_* of this server's GPUs. Part of ServerMetrics; uses its
// registry.
#pragma once

#include <memory>

#include "server/metrics/gpu/gpu_facts.h"

namespace quire {

struct MetricRegistry;

class GpuMetrics {
 public:
  // `registry` outlives this.
  explicit GpuMetrics(MetricRegistry& registry);
  ~GpuMetrics();

  // Takes a GPU's figures over. A series exists while its figure does. One thread at a time;
  // scrapes may overlap.
  void Set(const GpuFacts& facts);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
