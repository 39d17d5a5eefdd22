// Flattens a plan: one entry per token, one per sequence, one per row that samples.
#include "engine/worker/batch_builder.h"

#include "kernels/check.h"

namespace quire {

BatchBuilder::BatchBuilder(int32_t max_tokens, int32_t max_rows) {
  token_ids_.reserve(max_tokens);
  positions_.reserve(max_tokens);
  slots_.reserve(max_tokens);
  query_begin_.reserve(max_rows + 1);
  context_len_.reserve(max_rows);
  table_row_.reserve(max_rows);
  logit_rows_.reserve(max_rows);
}

ModelInput BatchBuilder::Build(const StepPlan& plan, const RowTables& tables) {
  token_ids_.clear();
  positions_.clear();
  slots_.clear();
  query_begin_.assign(1, 0);
  context_len_.clear();
  table_row_.clear();
  logit_rows_.clear();
  const int32_t block_size = tables.block_size();
  for (const RowWork& work : plan.work) {
    const int32_t* tokens = tables.tokens(work.row);
    for (int32_t position = work.start; position < work.start + work.count; ++position) {
      const int32_t block = tables.block(work.row, position / block_size);
      CHECK_NE(block, 0);
      token_ids_.push_back(tokens[position]);
      positions_.push_back(position);
      slots_.push_back(int64_t{block} * block_size + position % block_size);
    }
    query_begin_.push_back(static_cast<int32_t>(token_ids_.size()));
    context_len_.push_back(work.start + work.count);
    table_row_.push_back(work.row);
    if (work.sample) logit_rows_.push_back(static_cast<int32_t>(token_ids_.size()) - 1);
  }
  CHECK_EQ(static_cast<int32_t>(token_ids_.size()), plan.num_tokens);
  CHECK_EQ(static_cast<int32_t>(logit_rows_.size()), plan.num_samples);

  ModelInput input;
  input.num_tokens = plan.num_tokens;
  input.num_seqs = static_cast<int32_t>(plan.work.size());
  input.num_logit_rows = plan.num_samples;
  input.token_ids = token_ids_.data();
  input.positions = positions_.data();
  input.slots = slots_.data();
  input.query_begin = query_begin_.data();
  input.context_len = context_len_.data();
  input.table_row = table_row_.data();
  input.block_table = tables.block_table();
  input.table_stride = tables.blocks_per_row();
  input.logit_rows = logit_rows_.data();
  return input;
}

}  // namespace quire
