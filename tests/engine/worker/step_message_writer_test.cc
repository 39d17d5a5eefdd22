// RowTables, StepMessageWriter and StepArrays: a plan's rows become the arrays the model reads,
// position by position, through the message that a device executes.
// Covers engine/worker/rank/row_tables.cc
#include "engine/worker/rank/step_message_writer.h"

#include "engine/worker/rank/step_arrays.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

template <typename T>
std::vector<T> Copy(const T* data, int count) {
  return {data, data + count};
}

constexpr RowTables::Shape kShape{
    .num_rows = 3, .max_model_len = 10, .block_size = 4, .vocab_size = 40, .step_guesses = 4};
constexpr int32_t kMaxTokens = 8;

// Row 2 holds a 5-token prompt in blocks 7 and 3; row 0 decodes position 4 in block 9.
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

// One row decodes the position behind what TwoRowPlan left.
StepPlan DecodePlan(int32_t row, int32_t position) {
  StepPlan plan;
  plan.work = {{.row = row, .start = position, .count = 1, .sample = 1}};
  plan.num_tokens = plan.num_samples = 1;
  return plan;
}

class StepMessageWriterTest : public ::testing::Test {
 protected:
  // Executes a plan up to the model.
  ModelInput Begin(const StepPlan& plan, int32_t min_rows = 0) {
    tables_.Apply(plan);
    shape_ = StepMessageWriter::Write(plan, tables_, min_rows, arrays_.message(step_),
                                      arrays_.message_capacity());
    backend_->BeginStep(arrays_.Begin(shape_, tables_));
    return arrays_.Input(shape_, tables_);
  }
  // Hands out `tokens` as what was sampled.
  void End(const std::vector<int32_t>& tokens) {
    const SampleParams sample = arrays_.Sample({});
    for (size_t i = 0; i < tokens.size(); ++i) {
      sample.results[i].token = tokens[i];
      *sample.jobs[i].drawn = tokens[i];
    }
    backend_->EndStep(arrays_.End(shape_));
    ++step_;
  }

  std::unique_ptr<Backend> backend_ = std::move(CreateCpuBackends(1, 1)[0]);
  RowTables tables_ = *RowTables::Create(kShape, *backend_);
  StepArrays arrays_ = *StepArrays::Create(kShape, kMaxTokens, /*slots=*/2, *backend_);
  StepDims shape_;
  uint64_t step_ = 0;
};
using StepMessageWriterDeathTest = StepMessageWriterTest;

TEST_F(StepMessageWriterTest, FlattensRowsInPlanOrder) {
  const ModelInput input = Begin(TwoRowPlan());
  EXPECT_EQ(input.num_tokens, 4);
  EXPECT_EQ(input.num_seqs, 2);
  EXPECT_EQ(input.max_query_len, 3);
  EXPECT_THAT(Copy(input.token_ids, 4), ElementsAre(24, 12, 13, 14));
  EXPECT_THAT(Copy(input.positions, 4), ElementsAre(4, 2, 3, 4));
  EXPECT_THAT(Copy(input.slots, 4), ElementsAre(9 * 4, 7 * 4 + 2, 7 * 4 + 3, 3 * 4));
  EXPECT_THAT(Copy(input.query_begin, 3), ElementsAre(0, 1, 4));
  EXPECT_THAT(Copy(input.context_len, 2), ElementsAre(5, 5));
  EXPECT_THAT(Copy(input.table_row, 2), ElementsAre(0, 2));
  EXPECT_THAT(Copy(input.logit_rows, 1), ElementsAre(0));
  EXPECT_EQ(input.table_stride, 3);  // ceil(10 / 4) blocks a row
}

TEST_F(StepMessageWriterTest, ReadingsOfPromptsWantEveryToken) {
  using Kind = StepReading::Kind;
  for (const auto& [kind, every] :
       {std::pair(Kind::kDrawn, false), {Kind::kPrompt, true}, {Kind::kPooled, true}}) {
    StepPlan plan = TwoRowPlan();
    EXPECT_FALSE(Begin(plan).reads_tokens);
    End({1});
    plan.readings = {{.kind = kind}};
    EXPECT_EQ(Begin(plan).reads_tokens, every);
    End({1});
  }
}

TEST_F(StepMessageWriterTest, ReadsTheTokenTheSamplerDrew) {
  Begin(TwoRowPlan());
  End({99});
  // Position 5 of row 0 was drawn by the step before and never known to the host.
  EXPECT_EQ(Begin(DecodePlan(/*row=*/0, /*position=*/5)).token_ids[0], 99);
}

TEST_F(StepMessageWriterTest, ResultsComeBackInTheSlotOfTheirStep) {
  Begin(TwoRowPlan());
  End({7});
  Begin(DecodePlan(0, 5));
  End({8});
  EXPECT_EQ(arrays_.results(0)[0].token, 7);
  EXPECT_EQ(arrays_.results(1)[0].token, 8);
}

TEST_F(StepMessageWriterTest, PaddingRowsUseTheNullBlock) {
  Begin(TwoRowPlan());
  End({1});
  const ModelInput input = Begin(DecodePlan(0, 5), /*min_rows=*/3);
  EXPECT_EQ(input.num_tokens, 3);
  EXPECT_EQ(input.num_logit_rows, 3);
  EXPECT_EQ(input.max_query_len, 1);
  EXPECT_THAT(Copy(input.table_row, 3), ElementsAre(0, 3, 3));
  EXPECT_THAT(Copy(input.context_len, 3), ElementsAre(6, 1, 1));
  EXPECT_THAT(Copy(input.slots, 3), ElementsAre(9 * 4 + 1, 0, 0));
  EXPECT_THAT(Copy(input.logit_rows, 3), ElementsAre(0, 1, 2));
}

TEST_F(StepMessageWriterTest, APaddingStepIsSplitByTheLongestSequence) {
  const auto write = [this](const StepMessageWriter::Padding& padding) {
    shape_ = StepMessageWriter::WritePadding(tables_, padding, arrays_.message(step_),
                                             arrays_.message_capacity());
  };
  write({.num_tokens = 8, .longest = 12, .draws_all = false});
  EXPECT_EQ(shape_.num_seqs, 1);
  EXPECT_EQ(shape_.num_samples, 1);
  write({.num_tokens = 3, .longest = 2});
  EXPECT_EQ(shape_.num_seqs, 2);
  EXPECT_EQ(shape_.num_samples, 3);
  EXPECT_EQ(shape_.max_query_len, 2);
  backend_->BeginStep(arrays_.Begin(shape_, tables_));
  EXPECT_THAT(Copy(arrays_.Input(shape_, tables_).logit_rows, 3), ElementsAre(0, 1, 2));
  write({.num_tokens = 3});
  EXPECT_EQ(shape_.num_seqs, 3);
  EXPECT_EQ(shape_.max_query_len, 1);
  backend_->BeginStep(arrays_.Begin(shape_, tables_));
  const ModelInput input = arrays_.Input(shape_, tables_);
  EXPECT_THAT(Copy(input.slots, 3), ElementsAre(0, 0, 0)) << "the null block";
  EXPECT_THAT(Copy(input.logit_rows, 3), ElementsAre(0, 1, 2));
}

TEST_F(StepMessageWriterDeathTest, RefusesAPositionWithoutABlock) {
  Begin(TwoRowPlan());
  EXPECT_DEATH(Begin(DecodePlan(2, 8)), "num_blocks");
}

TEST_F(StepMessageWriterDeathTest, ANewRowForgetsTheBlocksOfTheOldOne) {
  Begin(TwoRowPlan());
  StepPlan next = DecodePlan(2, 0);
  next.new_rows = {{.row = 2, .num_prompt = 1}};
  EXPECT_DEATH(Begin(next), "num_blocks");
  EXPECT_EQ(Begin(DecodePlan(0, 4)).token_ids[0], 24) << "other rows are untouched";
}

TEST_F(StepMessageWriterTest, StopTokensAreBannedOnlyBeforeMinKnown) {
  StepPlan plan = TwoRowPlan();
  plan.biases = {{5, 1.5f}, {6, -2.0f}};
  plan.ids = {2, 3};
  plan.new_rows[1] = {.row = 0,
                      .num_prompt = 3,
                      .bias_begin = 1,
                      .bias_count = 1,
                      .ids_begin = 0,
                      .banned_count = 2,
                      .min_known = 6};
  Begin(plan);
  const SampleJob& early = arrays_.Sample({}).jobs[0];
  EXPECT_THAT(Copy(early.banned, early.num_banned), ElementsAre(2, 3));
  EXPECT_EQ(early.num_prompt, 3);
  EXPECT_EQ(early.num_known, 5);
  ASSERT_EQ(early.num_bias, 1);
  EXPECT_EQ(early.bias[0].token, 6);
  EXPECT_EQ(tables_.Job(0, 6).num_banned, 0);
}

TEST_F(StepMessageWriterTest, AJobFindsEachOfItsRowsLists) {
  StepPlan plan = TwoRowPlan();
  plan.ids = {9, 2, 4, ~5, 6, 7, 1};
  plan.new_rows[1] = {.row = 0,
                      .num_prompt = 3,
                      .ids_begin = 1,
                      .banned_count = 1,
                      .min_known = 6,
                      .bad_word_count = 2,
                      .allowed_count = 1,
                      .breaker_count = 2};
  Begin(plan);
  for (const SampleJob& job : {arrays_.Sample({}).jobs[0], tables_.Job(0, 6)}) {
    EXPECT_EQ(job.num_banned, job.num_known < 6 ? 1 : 0);
    EXPECT_THAT(Copy(job.bad_words, job.num_bad_words), ElementsAre(4, ~5));
    EXPECT_THAT(Copy(job.allowed, job.num_allowed), ElementsAre(6));
    EXPECT_THAT(Copy(job.breakers, job.num_breakers), ElementsAre(7, 1));
  }
}

// Each draw knows the tokens before it, guesses included, and leaves the table as it is.
TEST_F(StepMessageWriterTest, ARowWithGuessesHasADrawForEachPosition) {
  StepPlan plan = TwoRowPlan();
  plan.new_rows[0].min_known = 5;
  plan.new_rows[0].banned_count = 1;
  plan.ids = {9};
  plan.work[1].sample = 3;
  plan.num_samples = 4;
  const ModelInput input = Begin(plan);
  EXPECT_EQ(input.num_logit_rows, 4);
  EXPECT_THAT(Copy(input.logit_rows, 4), ElementsAre(0, 1, 2, 3));
  const SampleJob* jobs = arrays_.Sample({}).jobs;
  EXPECT_EQ(jobs[0].drawn, tables_.tokens(0) + 5);
  for (int32_t i = 1; i < 4; ++i) {
    EXPECT_EQ(jobs[i].tokens, tables_.tokens(2));
    EXPECT_EQ(jobs[i].num_known, 2 + i);
    EXPECT_EQ(jobs[i].num_banned, 2 + i < 5 ? 1 : 0);
    EXPECT_EQ(jobs[i].drawn, nullptr);
  }
}

TEST_F(StepMessageWriterTest, AJobFindsTheMaskOfItsRow) {
  StepPlan plan = TwoRowPlan();
  plan.work[1].sample = 1;
  plan.num_samples = 2;
  plan.mask_words = {7, 8, 9, 10};
  plan.masks = {{.row = 2, .begin = 1}};  // 40 tokens: two words
  Begin(plan);
  EXPECT_EQ(arrays_.Sample({}).jobs[0].mask, nullptr);
  ASSERT_NE(arrays_.Sample({}).jobs[1].mask, nullptr);
  EXPECT_THAT(Copy(arrays_.Sample({}).jobs[1].mask, 2), ElementsAre(8, 9));
  End({1, 2});
  Begin(DecodePlan(0, 5), /*min_rows=*/2);
  EXPECT_EQ(arrays_.Sample({}).jobs[0].mask, nullptr) << "a mask is of one draw";
  EXPECT_EQ(arrays_.Sample({}).jobs[1].mask, nullptr);
}

TEST_F(StepMessageWriterTest, AJobFindsTheLateMaskOfItsRowOnTheBoard) {
  const MaskBoard::Shape shape{.depth = 2, .masks = 3, .words = 2};
  std::vector<std::byte> memory(static_cast<size_t>(MaskBoard::Bytes(shape)));
  const MaskBoard board(memory.data(), shape);
  tables_.SetMasks(board);
  StepPlan plan = TwoRowPlan();
  plan.step = 5;
  plan.work[1].sample = 1;
  plan.num_samples = 2;
  plan.masks = {{.row = 2, .is_late = 1, .begin = 1}};
  board.Open(5, 1);
  Begin(plan);
  EXPECT_EQ(arrays_.Sample({}).jobs[0].mask_for, nullptr);
  const SampleJob& job = arrays_.Sample({}).jobs[1];
  EXPECT_EQ(*job.mask_for, kMaskAwaited);
  board.Post(5, 1, 5, std::vector<uint32_t>{8, 9});
  EXPECT_EQ(*job.mask_for, 5u);
  EXPECT_THAT(Copy(job.mask, 2), ElementsAre(8, 9));
  board.Withhold(4, 1);  // an entry of the other step in flight
  EXPECT_EQ(*job.mask_for, 5u);
  board.Withhold(5, 1);
  EXPECT_EQ(*job.mask_for, kMaskWithheld);
}

TEST_F(StepMessageWriterDeathTest, RefusesAMaskWithoutADraw) {
  StepPlan plan = TwoRowPlan();
  plan.mask_words = {7, 8};
  plan.masks = {{.row = 2, .begin = 0}};
  EXPECT_DEATH(Begin(plan), "masks");
  plan.masks = {{.row = 0, .begin = 1}};
  EXPECT_DEATH(Begin(plan), "mask_words");
}

TEST_F(StepMessageWriterTest, TheLargestPlanFitsItsSlot) {
  StepPlan plan;
  plan.biases.assign(RowTables::kMaxBiases, {1, 1.0f});
  plan.ids.assign(RowTables::kMaxIds, 1);
  plan.tokens.assign(kMaxTokens, 5);
  const int32_t counts[] = {4, 3, 1};
  uint32_t begin = 0;
  for (int32_t row = 0; row < kShape.num_rows; ++row) {
    plan.new_rows.push_back({.row = row,
                             .num_prompt = counts[row],
                             .bias_count = RowTables::kMaxBiases,
                             .banned_count = RowTables::kMaxIds});
    plan.token_runs.push_back(
        {.row = row, .begin = begin, .count = static_cast<uint32_t>(counts[row])});
    begin += counts[row];
    for (int32_t i = 0; i < 3; ++i) plan.block_adds.push_back({row, i, 1 + row * 3 + i});
    plan.work.push_back({.row = row, .count = counts[row], .sample = 1});
    plan.masks.push_back({.row = row, .begin = 0});
  }
  plan.mask_words = {~0u, ~0u};
  plan.num_tokens = kMaxTokens;
  plan.num_samples = kShape.num_rows;
  const ModelInput input = Begin(plan);
  EXPECT_EQ(input.token_ids[kMaxTokens - 1], 5);
}

}  // namespace
}  // namespace quire
