// Which captured step a plan runs as, and how often each size did: worker and server decide it by
// the same function, so that neither needs to tell the other.
#pragma once

#include <cstdint>
#include <span>

#include "engine/values/step_plan.h"

namespace quire {

// The least of `sizes` (ascending) that holds every row of a plan whose rows decode one token each;
// 0: the plan is run as it is.
int32_t GraphSizeFor(const StepPlan& plan, std::span<const int32_t> sizes);

// How often the steps captured at one size ran.
struct GraphUse {
  int32_t size = 0;
  uint64_t replays = 0;
  uint64_t padded_rows = 0;  // rows of those steps that were nobody's

  // Of all rows computed.
  double padded_share() const {
    const double rows = static_cast<double>(size) * static_cast<double>(replays);
    return rows == 0 ? 0 : static_cast<double>(padded_rows) / rows;
  }
};

}  // namespace quire
