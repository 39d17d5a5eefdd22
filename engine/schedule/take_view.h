// TakeView: reads the state of the scheduler for people who look at it.
#pragma once

#include "engine/values/scheduler_view.h"

namespace quire {

class LiveSequences;

// Without the times. O(nodes + blocks + pages + sequences). Between two steps.
SchedulerView TakeView(const LiveSequences& sequences);

}  // namespace quire
