// Applies plans to the tables and turns rows into sampling jobs.
#include "engine/worker/row_tables.h"

#include <algorithm>

#include "kernels/check.h"

namespace quire {
namespace {

int64_t BlocksPerRow(int32_t max_model_len, int32_t block_size) {
  return (int64_t{max_model_len} + block_size - 1) / block_size;
}

}  // namespace

RowTables::RowTables(int32_t num_rows, int32_t max_model_len, int32_t block_size)
    : max_model_len_(max_model_len),
      blocks_per_row_(BlocksPerRow(max_model_len, block_size)),
      block_size_(block_size),
      tokens_(num_rows * max_model_len_),
      blocks_(num_rows * blocks_per_row_),
      sampling_(num_rows) {}

int64_t RowTables::Bytes(int32_t num_rows, int32_t max_model_len, int32_t block_size) {
  return int64_t{num_rows} * (max_model_len + BlocksPerRow(max_model_len, block_size)) * 4;
}

void RowTables::Apply(const StepPlan& plan) {
  for (const NewRow& row : plan.new_rows) {
    Sampling& sampling = sampling_.at(row.row);
    sampling.params = row.sampling;
    sampling.num_prompt = row.num_prompt;
    sampling.min_known = row.min_known;
    CHECK_LE(size_t{row.bias_begin} + row.bias_count, plan.biases.size());
    CHECK_LE(size_t{row.banned_begin} + row.banned_count, plan.banned.size());
    const LogitBias* biases = plan.biases.data() + row.bias_begin;
    sampling.biases.assign(biases, biases + row.bias_count);
    const int32_t* banned = plan.banned.data() + row.banned_begin;
    sampling.banned.assign(banned, banned + row.banned_count);
    std::fill_n(&blocks_[row.row * blocks_per_row_], blocks_per_row_, 0);
  }
  for (const TokenRun& run : plan.token_runs) {
    CHECK_LT(static_cast<size_t>(run.row), sampling_.size());
    CHECK(run.start >= 0 && run.start + int64_t{run.count} <= max_model_len_);
    CHECK_LE(size_t{run.begin} + run.count, plan.tokens.size());
    std::copy_n(plan.tokens.data() + run.begin, run.count, tokens(run.row) + run.start);
  }
  for (const BlockAdd& add : plan.block_adds) {
    CHECK_LT(static_cast<size_t>(add.row), sampling_.size());
    CHECK(add.index >= 0 && add.index < blocks_per_row_);
    blocks_[add.row * blocks_per_row_ + add.index] = add.block;
  }
}

SampleJob RowTables::Job(int32_t row, int32_t num_known) const {
  const Sampling& sampling = sampling_[row];
  SampleJob job;
  job.params = sampling.params;
  job.tokens = tokens(row);
  job.num_prompt = sampling.num_prompt;
  job.num_known = num_known;
  job.bias = sampling.biases.data();
  job.num_bias = static_cast<int32_t>(sampling.biases.size());
  if (num_known < sampling.min_known) {
    job.banned = sampling.banned.data();
    job.num_banned = static_cast<int32_t>(sampling.banned.size());
  }
  return job;
}

void RowTables::SetToken(int32_t row, int32_t position, int32_t token) {
  CHECK(position >= 0 && position < max_model_len_);
  tokens(row)[position] = token;
}

}  // namespace quire
