// RowTables and BatchBuilder: a plan's rows become the arrays the model reads, position by
// position.
#include "engine/worker/batch_builder.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

template <typename T>
std::vector<T> Copy(const T* data, int count) {
  return {data, data + count};
}

// Row 2 holds a 5-token prompt in blocks 7 and 3; row 0 decodes position 4 in block 9 (block size
// 4).
StepPlan TwoRowPlan() {
  StepPlan plan;
  plan.new_rows = {{.row = 2, .num_prompt = 5}, {.row = 0, .num_prompt = 3}};
  plan.tokens = {10, 11, 12, 13, 14, 20, 21, 22, 23, 24};
  plan.token_runs = {{.row = 2, .start = 0, .begin = 0, .count = 5},
                     {.row = 0, .start = 0, .begin = 5, .count = 5}};
  plan.block_adds = {{2, 0, 7}, {2, 1, 3}, {0, 0, 8}, {0, 1, 9}};
  plan.work = {{.row = 0, .start = 4, .count = 1, .sample = 1},
               {.row = 2, .start = 2, .count = 3, .sample = 0}};
  plan.num_tokens = 4;
  plan.num_samples = 1;
  return plan;
}

TEST(BatchBuilderTest, FlattensRowsInPlanOrder) {
  RowTables tables(/*num_rows=*/3, /*max_model_len=*/10, /*block_size=*/4);
  const StepPlan plan = TwoRowPlan();
  tables.Apply(plan);
  BatchBuilder builder(8, 3);
  const ModelInput input = builder.Build(plan, tables);
  EXPECT_EQ(input.num_tokens, 4);
  EXPECT_EQ(input.num_seqs, 2);
  EXPECT_THAT(Copy(input.token_ids, 4), ElementsAre(24, 12, 13, 14));
  EXPECT_THAT(Copy(input.positions, 4), ElementsAre(4, 2, 3, 4));
  EXPECT_THAT(Copy(input.slots, 4), ElementsAre(9 * 4, 7 * 4 + 2, 7 * 4 + 3, 3 * 4));
  EXPECT_THAT(Copy(input.query_begin, 3), ElementsAre(0, 1, 4));
  EXPECT_THAT(Copy(input.context_len, 2), ElementsAre(5, 5));
  EXPECT_THAT(Copy(input.table_row, 2), ElementsAre(0, 2));
  EXPECT_THAT(Copy(input.logit_rows, 1), ElementsAre(0));
  EXPECT_EQ(input.table_stride, 3);  // ceil(10 / 4) blocks a row
}

TEST(BatchBuilderTest, ReadsTheTokenTheSamplerWrote) {
  RowTables tables(3, 10, 4);
  tables.Apply(TwoRowPlan());
  tables.SetToken(/*row=*/2, /*position=*/5, /*token=*/99);
  StepPlan next;
  next.work = {{.row = 2, .start = 5, .count = 1, .sample = 1}};
  next.num_tokens = next.num_samples = 1;
  tables.Apply(next);
  BatchBuilder builder(8, 3);
  EXPECT_EQ(builder.Build(next, tables).token_ids[0], 99);
}

TEST(BatchBuilderDeathTest, RefusesAPositionWithoutABlock) {
  RowTables tables(3, 10, 4);
  tables.Apply(TwoRowPlan());
  StepPlan next;
  next.work = {{.row = 2, .start = 8, .count = 1, .sample = 1}};
  next.num_tokens = next.num_samples = 1;
  BatchBuilder builder(8, 3);
  EXPECT_DEATH(builder.Build(next, tables), "block");
}

TEST(RowTablesTest, ANewRowForgetsTheBlocksOfTheOldOne) {
  RowTables tables(3, 10, 4);
  tables.Apply(TwoRowPlan());
  StepPlan next;
  next.new_rows = {{.row = 2, .num_prompt = 1}};
  tables.Apply(next);
  EXPECT_EQ(tables.block(2, 0), 0);
  EXPECT_EQ(tables.block(2, 1), 0);
  EXPECT_EQ(tables.block(0, 0), 8) << "other rows are untouched";
}

TEST(RowTablesTest, StopTokensAreBannedOnlyBeforeMinKnown) {
  RowTables tables(1, 10, 4);
  StepPlan plan;
  plan.biases = {{5, 1.5f}, {6, -2.0f}};
  plan.banned = {2, 3};
  plan.new_rows = {{.row = 0,
                    .num_prompt = 3,
                    .bias_begin = 1,
                    .bias_count = 1,
                    .banned_begin = 0,
                    .banned_count = 2,
                    .min_known = 5}};
  tables.Apply(plan);
  const SampleJob early = tables.Job(0, 4);
  EXPECT_THAT(Copy(early.banned, early.num_banned), ElementsAre(2, 3));
  EXPECT_EQ(early.num_prompt, 3);
  ASSERT_EQ(early.num_bias, 1);
  EXPECT_EQ(early.bias[0].token, 6);
  EXPECT_EQ(tables.Job(0, 5).num_banned, 0);
}

}  // namespace
}  // namespace quire
