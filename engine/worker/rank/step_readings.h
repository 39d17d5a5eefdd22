// StepReadings: the jobs of a step's readings, and the host memory of these and their results. A
// step's readings run behind its last operation, outside captured steps, over the logits and hidden
// states that it leaves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/values/step_plan.h"
#include "engine/worker/rank/row_tables.h"
#include "kernels/backend.h"

namespace quire {

class StepReadings {
 public:
  struct Shape {
    int32_t max_rows = 0;
    int32_t max_tokens = 0;  // of a step
    int32_t slice_rows = 0;  // rows of logits that a slice of a prompt has at most
    int32_t hidden_size = 0;
    int32_t slots = 0;  // steps under way at once
  };
  // Tokens whose hidden states are read together; `jobs` are those of this rank.
  struct Slice {
    std::span<const int32_t> rows;  // indices into the step's tokens
    std::span<const ScoreJob> scores;
    std::span<const PoolJob> pools;
  };
  // Of one step, in the memory of its slot.
  struct Jobs {
    std::span<const ScoreJob> drawn;  // over the rows of logits that this rank samples
    std::vector<Slice> slices;
  };

  // RESOURCE_EXHAUSTED with the size when the host has too little memory.
  static absl::StatusOr<StepReadings> Create(const Shape& shape, Backend& backend);

  // Makes the jobs of a plan with readings, the step-th step counted from 0, which samples
  // `num_samples` rows, padding included. Clears the words of its slot.
  Jobs Write(const StepPlan& plan, const RowTables& tables, int32_t num_samples, uint64_t step);
  // The results of that step once it has ended.
  std::span<const uint32_t> words(uint64_t step, size_t count) const;

 private:
  // The memory of one step.
  struct Slot {
    ScoreJob* scores = nullptr;  // [max_tokens + max_rows]
    PoolJob* pools = nullptr;    // [max_rows + slices]
    int32_t* rows = nullptr;     // [max_tokens]
    uint32_t* words = nullptr;   // [MaxReadingWords]
  };
  class Writer;

  Slot SlotOf(uint64_t step) const;
  int64_t SlotBytes() const;

  Shape shape_;
  RankOf group_;
  Buffer host_;
};

}  // namespace quire
