// How the results that two ranks gave to one plan differ, in one sentence.
#pragma once

#include <cstdint>
#include <string>

#include "engine/values/step_plan.h"
#include "engine/values/step_result.h"

namespace quire {

// Of rank 0 and of another rank, for results whose checksums differ. Names the step, the first row
// whose tokens differ and both tokens; or says that the rows differ, or the graphs.
std::string DescribeMismatch(const StepResult& first, int32_t rank, const StepResult& other);

}  // namespace quire
