// Lays out the tables in one allocation and keeps the host's share of each row.
#include "engine/worker/rank/row_tables.h"

#include <string>

#include "kernels/ceil_div.h"
#include "kernels/check.h"

namespace quire {
namespace {

int64_t BlocksPerRow(const RowTables::Shape& shape) {
  return CeilDiv<int64_t>(shape.max_model_len, shape.block_size);
}

// Bytes of the tables of one row, in the order they are laid out in.
int64_t TokenBytes(const RowTables::Shape& shape) { return int64_t{4} * shape.max_model_len; }
int64_t BlockBytes(const RowTables::Shape& shape) { return 4 * BlocksPerRow(shape); }
constexpr int64_t kBiasBytes = int64_t{sizeof(LogitBias)} * RowTables::kMaxBiases;
constexpr int64_t kIdBytes = int64_t{4} * RowTables::kMaxIds;

}  // namespace

int64_t RowTables::Bytes(const Shape& shape) {
  return (int64_t{shape.num_rows} + 1) *
         (kBiasBytes + kIdBytes + TokenBytes(shape) + BlockBytes(shape));
}

absl::StatusOr<RowTables> RowTables::Create(const Shape& shape, Backend& backend) {
  RowTables tables;
  tables.memory_ = backend.Allocate(static_cast<size_t>(Bytes(shape)));
  if (tables.memory_.empty()) {
    return absl::ResourceExhaustedError("no memory for the row tables of --max-num-seqs " +
                                        std::to_string(shape.num_rows) + " sequences (" +
                                        std::to_string(Bytes(shape)) + " bytes)");
  }
  tables.shape_ = shape;
  tables.blocks_per_row_ = BlocksPerRow(shape);
  tables.rows_.resize(shape.num_rows + 1);
  const int64_t rows = int64_t{shape.num_rows} + 1;
  char* at = static_cast<char*>(tables.memory_.data());
  tables.biases_ = reinterpret_cast<LogitBias*>(at);
  at += rows * kBiasBytes;
  tables.ids_ = reinterpret_cast<int32_t*>(at);
  at += rows * kIdBytes;
  tables.tokens_ = reinterpret_cast<int32_t*>(at);
  at += rows * TokenBytes(shape);
  tables.blocks_ = reinterpret_cast<int32_t*>(at);
  return tables;
}

void RowTables::Apply(const StepPlan& plan) {
  for (const NewRow& added : plan.new_rows) {
    CHECK(added.row >= 0 && added.row < shape_.num_rows);
    CHECK_LE(added.bias_count, uint32_t{kMaxBiases});
    CHECK_LE(added.ids_count(), uint32_t{kMaxIds});
    rows_[added.row] = {.params = added.sampling,
                        .num_prompt = added.num_prompt,
                        .min_known = added.min_known,
                        .num_biases = static_cast<int32_t>(added.bias_count),
                        .num_banned = static_cast<int32_t>(added.banned_count),
                        .num_bad_words = static_cast<int32_t>(added.bad_word_count),
                        .num_allowed = static_cast<int32_t>(added.allowed_count),
                        .num_breakers = static_cast<int32_t>(added.breaker_count),
                        .kept = added.kept};
  }
  for (const BlockAdd& add : plan.block_adds) {
    CHECK(add.row >= 0 && add.row < shape_.num_rows);
    CHECK_LT(add.index, blocks_per_row_);
    CHECK_EQ(add.index, rows_[add.row].num_blocks);
    CHECK_NE(add.block, 0);
    ++rows_[add.row].num_blocks;
  }
}

void RowTables::CheckCovered(const RowWork& work) const {
  CHECK(work.row >= 0 && work.row < shape_.num_rows);
  CHECK(work.start >= 0 && work.count > 0);
  CHECK_LE(int64_t{work.start} + work.count,
           int64_t{rows_[work.row].num_blocks} * shape_.block_size);
}

SampleJob RowTables::Job(int32_t row, int32_t num_known) const {
  CHECK(num_known >= 0 && num_known < shape_.max_model_len);
  const Row& known = rows_[row];
  SampleJob job;
  job.params = known.params;
  job.tokens = tokens(row);
  job.drawn = tokens(row) + num_known;
  job.num_prompt = known.num_prompt;
  job.num_known = num_known;
  job.bias = biases(row);
  job.num_bias = known.num_biases;
  job.banned = ids(row);
  job.num_banned = num_known < known.min_known ? known.num_banned : 0;
  job.bad_words = job.banned + known.num_banned;
  job.num_bad_words = known.num_bad_words;
  job.allowed = job.bad_words + known.num_bad_words;
  job.num_allowed = known.num_allowed;
  job.breakers = job.allowed + known.num_allowed;
  job.num_breakers = known.num_breakers;
  job.kept = known.kept;
  return job;
}

const int32_t* RowTables::scored_ids(int32_t row) const {
  const Row& known = rows_[row];
  return ids(row) + known.num_banned + known.num_bad_words + known.num_allowed + known.num_breakers;
}

}  // namespace quire
