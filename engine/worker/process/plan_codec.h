// The bytes of plans and results between processes: a head of counts, then the elements of each
// vector as they lie in memory. Both ends are built from the same source and run on the same
// machine; a checksum in the head verifies that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/values/step_plan.h"
#include "engine/values/step_result.h"

namespace quire {

// The largest plan and result of an engine.
struct PlanBounds {
  int32_t max_rows = 0;    // --max-num-seqs
  int32_t max_draws = 0;   // of one step
  int32_t max_tokens = 0;  // of one step
  int32_t num_blocks = 0;  // of the pool: a plan adds each block to at most one row
  int32_t vocab_size = 0;  // of masks; 0: plans have none
  int32_t hidden_size = 0;

  // Bytes of the largest plan, and of the largest result, within these bounds.
  int64_t PlanBytes() const;
  int64_t ResultBytes() const;

  bool operator==(const PlanBounds&) const = default;
};

// Returns the bytes written. Aborts when `out` is too short: the bounds were wrong.
size_t EncodePlan(const StepPlan& plan, std::span<std::byte> out);
size_t EncodeResult(const StepResult& result, std::span<std::byte> out);

// The bytes that an encoded plan or result takes of `bytes`, by its head; none if there is no head.
// Says nothing about whether it can be decoded.
size_t EncodedBytes(std::span<const std::byte> bytes);

// False when the bytes are malformed; the output is then unusable. Reads nothing beyond `bytes` and
// decides on nothing that it reads twice, so another process may write to `bytes` meanwhile. Does
// not check the values of the elements.
bool DecodePlan(std::span<const std::byte> bytes, StepPlan& plan);
bool DecodeResult(std::span<const std::byte> bytes, StepResult& result);

}  // namespace quire
