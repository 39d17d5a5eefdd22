// RowTables: a worker's memory of the live sequences, one row each, on its device: token ids, block
// table, logit biases, banned tokens. Steps read it; it is changed by the patches of step messages
// and by the sampler alone. Which request a row serves is not known here.
//
// One extra row belongs to nobody: its blocks are the null block, and captured steps are filled up
// with it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/values/step_plan.h"
#include "kernels/backend.h"

namespace quire {

class RowTables {
 public:
  struct Shape {
    int32_t num_rows = 0;
    int32_t max_model_len = 0;
    int32_t block_size = 0;
  };
  // Of one row, as the request codec allows.
  static constexpr int32_t kMaxBiases = 1024;
  static constexpr int32_t kMaxBanned = 256;

  // RESOURCE_EXHAUSTED with the size when the device has too little memory.
  static absl::StatusOr<RowTables> Create(const Shape& shape, Backend& backend);
  // Device bytes that Create takes, for the memory plan.
  static int64_t Bytes(const Shape& shape);

  // Remembers what a plan says of rows and blocks; the message written from the same plan does the
  // rest. Aborts on a row or index outside the tables: that is a scheduler bug.
  void Apply(const StepPlan& plan);
  // Aborts when the row lacks a block for one of the work's positions.
  void CheckCovered(const RowWork& work) const;
  // The job of sampling the token at position `num_known` of a row; pointers are the device's.
  SampleJob Job(int32_t row, int32_t num_known) const;

  // Device addresses.
  int32_t* tokens(int32_t row) const { return tokens_ + row * int64_t{shape_.max_model_len}; }
  int32_t* blocks(int32_t row) const { return blocks_ + row * blocks_per_row_; }
  LogitBias* biases(int32_t row) const { return biases_ + row * int64_t{kMaxBiases}; }
  int32_t* banned(int32_t row) const { return banned_ + row * int64_t{kMaxBanned}; }

  int64_t blocks_per_row() const { return blocks_per_row_; }
  const Shape& shape() const { return shape_; }
  int32_t nobody() const { return shape_.num_rows; }

 private:
  // What the host must know of a row to make its jobs.
  struct Row {
    SampleRow params;
    int32_t num_prompt = 0;
    int32_t min_known = 0;
    int32_t num_biases = 0;
    int32_t num_banned = 0;
    int32_t num_blocks = 0;
  };

  Shape shape_;
  int64_t blocks_per_row_ = 0;
  Buffer memory_;
  int32_t* tokens_ = nullptr;    // [num_rows + 1, max_model_len]
  int32_t* blocks_ = nullptr;    // [num_rows + 1, blocks_per_row]
  LogitBias* biases_ = nullptr;  // [num_rows + 1, kMaxBiases]
  int32_t* banned_ = nullptr;    // [num_rows + 1, kMaxBanned]
  std::vector<Row> rows_;        // [num_rows + 1]
};

}  // namespace quire
