// RowTables: a worker's memory of the live sequences, one row each, on its device: token ids, block
// table, logit biases, lists of ids. Steps read it; only the patches of step messages and the
// sampler change it. It does not know which request a row serves.
//
// One extra row is padding: its blocks are the null block, and captured steps are filled up with
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/values/mask_board.h"
#include "engine/values/sampling_params.h"
#include "engine/values/step_plan.h"
#include "kernels/backend.h"

namespace quire {

class RowTables {
 public:
  struct Shape {
    int32_t num_rows = 0;
    int32_t max_model_len = 0;
    int32_t block_size = 0;
    int32_t vocab_size = 0;    // of masks; 0: plans have none
    int32_t step_guesses = 0;  // of a step at most

    // Of a step: one of each row and of padding, and one for each guess.
    int64_t max_draws() const { return int64_t{num_rows} + 1 + step_guesses; }
  };
  // Of one row: the biases that a request may give, and all of NewRow's lists of ids.
  static constexpr int32_t kMaxBiases = SamplingParams::kMaxLogitBias;
  static constexpr int32_t kMaxIds =
      SamplingParams::kMaxStopTokenIds + SamplingParams::kMaxEosTokenIds +
      SamplingParams::kMaxBadWordIds + SamplingParams::kMaxAllowedIds +
      SamplingParams::kMaxBreakers + kMaxScoredIds;

  // RESOURCE_EXHAUSTED with the size when the device has too little memory.
  static absl::StatusOr<RowTables> Create(const Shape& shape, Backend& backend);
  // Device bytes that Create takes, for the memory plan.
  static int64_t Bytes(const Shape& shape);

  // Updates the host's share of the rows and blocks of a plan; the message written from the same
  // plan updates the device's. Aborts on a row or index outside the tables: that is a scheduler
  // bug.
  void Apply(const StepPlan& plan);
  // Aborts when the row lacks a block for one of the work's positions.
  void CheckCovered(const RowWork& work) const;
  // The job of sampling the token at position `num_known` of a row; pointers are the device's.
  SampleJob Job(int32_t row, int32_t num_known) const;

  // Where late masks come.
  void SetMasks(const MaskBoard& board) { masks_ = board; }
  const MaskBoard& masks() const { return masks_; }

  // Device addresses.
  int32_t* tokens(int32_t row) const { return tokens_ + row * int64_t{shape_.max_model_len}; }
  int32_t* blocks(int32_t row) const { return blocks_ + row * blocks_per_row_; }
  LogitBias* biases(int32_t row) const { return biases_ + row * int64_t{kMaxBiases}; }
  int32_t* ids(int32_t row) const { return ids_ + row * int64_t{kMaxIds}; }
  // The ids that the scores of the row's drawn tokens have.
  const int32_t* scored_ids(int32_t row) const;

  int64_t blocks_per_row() const { return blocks_per_row_; }
  const Shape& shape() const { return shape_; }
  int32_t padding_row() const { return shape_.num_rows; }

 private:
  // The host's share of a row, from which its jobs are made.
  struct Row {
    SampleRow params;
    int32_t num_prompt = 0;
    int32_t min_known = 0;
    int32_t num_biases = 0;
    int32_t num_banned = 0;
    int32_t num_bad_words = 0;
    int32_t num_allowed = 0;
    int32_t num_breakers = 0;
    KeptLogits kept = KeptLogits::kNone;
    int32_t num_blocks = 0;
  };

  Shape shape_;
  int64_t blocks_per_row_ = 0;
  Buffer memory_;
  int32_t* tokens_ = nullptr;    // [num_rows + 1, max_model_len]
  int32_t* blocks_ = nullptr;    // [num_rows + 1, blocks_per_row]
  LogitBias* biases_ = nullptr;  // [num_rows + 1, kMaxBiases]
  int32_t* ids_ = nullptr;       // [num_rows + 1, kMaxIds]
  std::vector<Row> rows_;        // [num_rows + 1]
  MaskBoard masks_;
};

}  // namespace quire
