// The choice of a captured step.
#include "engine/worker/rank/graph_use.h"

#include <algorithm>

namespace quire {

int32_t GraphSizeFor(const StepPlan& plan, std::span<const int32_t> sizes) {
  for (const RowWork& work : plan.work) {
    if (work.count != 1 || !work.sample) return 0;
  }
  const auto size =
      std::lower_bound(sizes.begin(), sizes.end(), static_cast<int32_t>(plan.work.size()));
  return size == sizes.end() ? 0 : *size;
}

}  // namespace quire
