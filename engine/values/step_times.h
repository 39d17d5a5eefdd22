// SampledSteps: where the device time of one rank goes, from steps that were timed by parts. About
// one step in two seconds is sampled, and more while a timeline is recorded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/step_profiler.h"

namespace quire {

// Nanoseconds by StepPart.
using PartSums = std::array<uint64_t, kNumStepParts>;

inline PartSums SumOf(std::span<const PartTime> parts) {
  PartSums sums{};
  for (const PartTime& part : parts) sums[static_cast<size_t>(part.part)] += part.ns;
  return sums;
}

struct SampledSteps {
  uint64_t steps = 0;
  PartSums total{};  // of all of them
  // The last one.
  PartSums last{};
  int32_t last_rows = 0;
  int32_t last_tokens = 0;

  void Add(const PartSums& sums, int32_t rows, int32_t tokens) {
    ++steps;
    last = sums;
    last_rows = rows;
    last_tokens = tokens;
    for (size_t i = 0; i < sums.size(); ++i) total[i] += sums[i];
  }
};

}  // namespace quire
