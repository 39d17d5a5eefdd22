// StepResult: what one rank says of a step that it executed, as plain data; see step_plan.h.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/step_message.h"
#include "kernels/step_profiler.h"

namespace quire {

struct SampledToken {
  int32_t row = 0;
  SampleResult result;
};

struct StepResult {
  uint64_t step = 0;
  uint64_t checksum = 0;  // over step, graph, rows and tokens; must agree between ranks
  // By the steady clock of the rank's host: the rank had the plan, had enqueued it, had its result.
  int64_t started_ns = 0;
  int64_t enqueued_ns = 0;
  int64_t finished_ns = 0;
  std::vector<SampledToken> samples;  // one per RowWork with sample set, in plan order
  std::vector<PartTime> parts;        // of a timed step, see StepProfiler::Take; else empty
};

}  // namespace quire
