// The draws of a row, as plans carry them to the workers: its parameters and lists with its first
// step, and its mask with each draw under a guide.
#pragma once

#include "engine/schedule/sequence.h"
#include "engine/values/step_plan.h"

namespace quire {

// Appends the sequence's NewRow, and its biases and ids.
void WriteNewRow(const Sequence& sequence, StepPlan& plan);
// Appends the mask of the sequence's next draw, which must be there.
void WriteMask(const Sequence& sequence, StepPlan& plan);

}  // namespace quire
