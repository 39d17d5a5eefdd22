// IsHealthy: the one policy behind grpc.health.v1, /health, /livez and /readyz.
#include <algorithm>

#include "server/front/grpc_front.h"

namespace quire {

bool IsHealthy(const EngineStats& stats, int64_t now_ns, double limit_seconds) {
  if (!stats.fault.empty() || stats.recovering) return false;
  if (!stats.work_waiting) return true;
  // The wait begins when work arrives at an idle engine, and again with every retired step.
  const int64_t since_ns = std::max(stats.last_retired_ns, stats.work_since_ns);
  return static_cast<double>(now_ns - since_ns) <= limit_seconds * 1e9;
}

}  // namespace quire
