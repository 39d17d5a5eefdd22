// The choice of the captured step that a plan runs as, and how often each size was used. The engine
// chooses once, for StepPlan::graph_size, which its own counts and all workers read.
#pragma once

#include <cstdint>
#include <span>

#include "engine/values/step_plan.h"

namespace quire {

// The smallest of `sizes` (ascending) that holds every row of the plan. 0, run uncaptured: not
// every row decodes one token, or there are more rows than the largest size.
int32_t GraphSizeFor(const StepPlan& plan, std::span<const int32_t> sizes);

// How often the steps captured at one size ran.
struct GraphUse {
  int32_t size = 0;
  uint64_t replays = 0;
  uint64_t padded_rows = 0;  // rows of those steps that were padding

  // Fraction of all computed rows that was padding.
  double padded_share() const {
    const double rows = static_cast<double>(size) * static_cast<double>(replays);
    return rows == 0 ? 0 : static_cast<double>(padded_rows) / rows;
  }
};

}  // namespace quire
