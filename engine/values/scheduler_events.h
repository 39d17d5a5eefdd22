// SchedulerEvents: what one call of the scheduler changed, for its caller to deliver and count.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/values/output_sink.h"

namespace quire {

// What one call changed, to be delivered and counted by the caller. Reused: cleared by the caller.
struct SchedulerEvents {
  std::vector<TokenEvent> tokens;
  std::vector<FinishEvent> finishes;
  int32_t preempted = 0;  // by Schedule: running ones sent back to the queue
  int32_t admitted = 0;   // by Schedule: waiting ones that began or resumed
};

}  // namespace quire
