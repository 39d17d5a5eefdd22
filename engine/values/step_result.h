// StepResult: what one rank says of a step that it executed, as plain data; see step_plan.h.
#pragma once

#include <cstddef>
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
  std::vector<SampledToken> samples;  // RowWork::sample of each work, in plan order
  std::vector<PartTime> parts;        // of a timed step, see StepProfiler::Take; else empty
  // Of the plan's readings. Each rank reads its own part and leaves zeros in place of the others'.
  std::vector<uint32_t> reading_words;
};

// Completes rank 0's readings by those of another rank; `of` and `with` have the same number. To do
// it again changes nothing.
inline void JoinReadings(const StepResult& with, StepResult& of) {
  for (size_t i = 0; i < of.reading_words.size(); ++i) {
    of.reading_words[i] |= with.reading_words[i];
  }
}

}  // namespace quire
