// Plans carry a row's parameters and lists to the workers with its first step, its readings with
// the work that they belong to, and its mask with each draw under a guide.
#pragma once

#include "engine/schedule/sequence.h"
#include "engine/values/step_plan.h"

namespace quire {

// Appends the sequence's NewRow, and its biases and ids.
void WriteNewRow(const Sequence& sequence, StepPlan& plan);
// Appends the mask of the sequence's next draw, or says that it comes late if it is not there:
// then false.
bool WriteMask(Sequence& sequence, StepPlan& plan);

// Appends the readings that the plan's last work, of this sequence, has.
void WriteReadings(const Sequence& sequence, int32_t hidden_size, StepPlan& plan);

}  // namespace quire
