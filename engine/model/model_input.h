// ModelInput: the flat arrays of one step in device memory, consistent by construction and equal on
// every rank (query_begin[S] == num_tokens). The worker fills them from a StepPlan and its row
// tables.
#pragma once

#include <cstdint>

namespace quire {

struct ModelInput {
  int32_t num_tokens = 0;                // T
  int32_t num_seqs = 0;                  // S
  int32_t num_logit_rows = 0;            // R
  int32_t max_query_len = 0;             // of any of the S
  const int32_t* token_ids = nullptr;    // [T]
  const int32_t* positions = nullptr;    // [T]
  const int64_t* slots = nullptr;        // [T] block * block_size + offset
  const int32_t* query_begin = nullptr;  // [S + 1]
  const int32_t* context_len = nullptr;  // [S] tokens including this step's
  const int32_t* table_row = nullptr;    // [S] row of block_table
  const int32_t* block_table = nullptr;  // [rows, table_stride]
  int64_t table_stride = 0;
  const int32_t* logit_rows = nullptr;  // [R] index into the T tokens
  bool reads_tokens = false;            // Model::Hidden or Logits of any of the T will follow
};

}  // namespace quire
