// RowTables: a worker's memory of the live sequences, one row each: token ids, block table,
// sampling state. Plans change it; steps read it. Which request a row serves is not known here.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/step_plan.h"

namespace quire {

class RowTables {
 public:
  RowTables(int32_t num_rows, int32_t max_model_len, int32_t block_size);

  // Bytes such tables take, for the memory plan.
  static int64_t Bytes(int32_t num_rows, int32_t max_model_len, int32_t block_size);

  // Takes the plan's new rows, token runs and block additions. Aborts on a row, position or index
  // outside the tables: that is a scheduler bug.
  void Apply(const StepPlan& plan);

  // Token ids of a row, by position; the last sampled token included.
  int32_t* tokens(int32_t row) { return &tokens_[row * max_model_len_]; }
  const int32_t* tokens(int32_t row) const { return &tokens_[row * max_model_len_]; }
  // All block tables, [num_rows, blocks_per_row].
  const int32_t* block_table() const { return blocks_.data(); }
  int64_t blocks_per_row() const { return blocks_per_row_; }
  int32_t block(int32_t row, int32_t index) const { return blocks_[row * blocks_per_row_ + index]; }
  int32_t block_size() const { return block_size_; }

  // The job of sampling the token at position `num_known` of a row.
  SampleJob Job(int32_t row, int32_t num_known) const;
  // Records what was sampled there.
  void SetToken(int32_t row, int32_t position, int32_t token);

 private:
  struct Sampling {
    SampleRow params;
    int32_t num_prompt = 0;
    int32_t min_known = 0;
    std::vector<LogitBias> biases;
    std::vector<int32_t> banned;
  };

  const int64_t max_model_len_;
  const int64_t blocks_per_row_;
  const int32_t block_size_;
  std::vector<int32_t> tokens_;     // [num_rows, max_model_len]
  std::vector<int32_t> blocks_;     // [num_rows, blocks_per_row]
  std::vector<Sampling> sampling_;  // [num_rows]
};

}  // namespace quire
