// A row's parameters and lists, as the plan of its first step carries them to the workers, and its
// readings.
#pragma once

#include "engine/schedule/sequence.h"
#include "engine/values/step_plan.h"

namespace quire {

// Appends the sequence's NewRow, and its biases and ids.
void WriteNewRow(const Sequence& sequence, StepPlan& plan);

// Appends the readings that the plan's last work, of this sequence, has.
void WriteReadings(const Sequence& sequence, int32_t hidden_size, StepPlan& plan);

}  // namespace quire
