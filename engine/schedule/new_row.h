// A row's parameters and lists, as the plan of its first step carries them to the workers.
#pragma once

#include "engine/schedule/sequence.h"
#include "engine/values/step_plan.h"

namespace quire {

// Appends the sequence's NewRow, and its biases and ids.
void WriteNewRow(const Sequence& sequence, StepPlan& plan);

}  // namespace quire
