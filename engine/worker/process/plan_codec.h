// The bytes in which plans and results travel between processes: a head of counts, then the
// elements of each vector as they lie in memory. Both ends are built from the same source and run
// on the same machine; the head says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/values/step_plan.h"

namespace quire {

// The most that one plan or result of an engine can hold.
struct PlanBounds {
  int32_t max_rows = 0;    // --max-num-seqs
  int32_t max_tokens = 0;  // of one step
  int32_t num_blocks = 0;  // of the pool: a plan adds each to one row at most

  // Bytes that fit every plan, and every result, of these bounds.
  int64_t PlanBytes() const;
  int64_t ResultBytes() const;

  bool operator==(const PlanBounds&) const = default;
};

// Bytes written. Aborts when `out` is too short: the bounds were wrong.
size_t EncodePlan(const StepPlan& plan, std::span<std::byte> out);
size_t EncodeResult(const StepResult& result, std::span<std::byte> out);

// False when no encoder wrote these bytes; what was decoded until then is worthless. Reads nothing
// beyond `bytes` and believes nothing it reads twice, so that `bytes` may be memory that somebody
// else goes on writing. What the elements say is not looked at.
bool DecodePlan(std::span<const std::byte> bytes, StepPlan& plan);
bool DecodeResult(std::span<const std::byte> bytes, StepResult& result);

}  // namespace quire
