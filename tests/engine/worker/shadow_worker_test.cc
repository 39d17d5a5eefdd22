// ShadowWorker: computes the right tokens and reports each kind of bad plan.
#include "engine/worker/fake/shadow_worker.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/worker/fake/null_worker.h"

namespace quire {
namespace {

ShadowWorkerOptions Options() {
  ShadowWorkerOptions options;
  options.num_blocks = 8;
  options.block_size = 2;
  options.max_num_seqs = 2;
  options.max_model_len = 8;
  options.max_num_batched_tokens = 6;
  options.abort_on_violation = false;
  return options;
}

// A good first plan: row 1 takes three tokens in blocks 5 and 3, and samples.
StepPlan FirstPlan() {
  StepPlan plan;
  plan.step = 1;
  plan.num_tokens = 3;
  plan.num_samples = 1;
  plan.new_rows.push_back({.row = 1, .num_prompt = 3});
  plan.tokens = {10, 11, 12};
  plan.token_runs.push_back({.row = 1, .start = 0, .begin = 0, .count = 3});
  plan.block_adds = {{1, 0, 5}, {1, 1, 3}};
  plan.work.push_back({.row = 1, .start = 0, .count = 3, .sample = 1});
  return plan;
}

// The next token of the same row.
StepPlan SecondPlan() {
  StepPlan plan;
  plan.step = 2;
  plan.num_tokens = 1;
  plan.num_samples = 1;
  plan.work.push_back({.row = 1, .start = 3, .count = 1, .sample = 1});
  return plan;
}

uint64_t HashOf(const std::vector<int32_t>& tokens) {
  uint64_t prefix = ShadowModel::kNoTokens;
  for (const int32_t token : tokens) prefix = ShadowModel::Extend(prefix, token);
  return prefix;
}

TEST(ShadowWorkerTest, ContinuesTheRowsTokensAsTheModelSays) {
  ShadowWorker worker(Options());
  StepResult result;
  worker.Run(FirstPlan(), result);
  ASSERT_EQ(worker.violation(), "");
  ASSERT_EQ(result.samples.size(), 1u);
  EXPECT_EQ(result.step, 1u);
  EXPECT_EQ(result.samples[0].row, 1);
  const ShadowModel model;
  const int32_t first = model.Next(HashOf({10, 11, 12}), 0, {}).token;
  EXPECT_EQ(result.samples[0].result.token, first);
  worker.Run(SecondPlan(), result);
  ASSERT_EQ(worker.violation(), "");
  EXPECT_EQ(result.samples[0].result.token, model.Next(HashOf({10, 11, 12, first}), 0, {}).token);
}

TEST(ShadowWorkerTest, SamplesByPrefixSeedAndBan) {
  ShadowModel model;
  model.vocab_size = 5;
  const uint64_t prefix = HashOf({1, 2});
  EXPECT_EQ(model.Next(prefix, 3, {}).token, model.Next(prefix, 3, {}).token);
  int32_t differences = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const int32_t token = model.Next(prefix, seed, {}).token;
    differences += token != model.Next(HashOf({2, 1}), seed, {}).token;
    const std::vector<int32_t> banned = {0, 1, 3, 4};
    EXPECT_EQ(model.Next(prefix, seed, banned).token, 2);
  }
  EXPECT_GT(differences, 50);
}

TEST(ShadowWorkerTest, InjectsEosAndNonFiniteRowsAtTheirRates) {
  ShadowModel model;
  model.eos_token = 999;
  model.eos_probability = 0.25;
  model.nan_probability = 0.1;
  int32_t num_eos = 0;
  int32_t num_nan = 0;
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    const SampleResult result = model.Next(HashOf({4}), seed, {});
    num_nan += result.nonfinite;
    num_eos += !result.nonfinite && result.token == 999;
  }
  EXPECT_NEAR(num_nan, 1000, 150);         // five standard deviations of 30
  EXPECT_NEAR(num_eos, 9000 * 0.25, 220);  // of 41, and one in a thousand by chance
}

TEST(ShadowWorkerTest, ReportsABlockOverwrittenByAnotherSequence) {
  ShadowWorker worker(Options());
  StepResult result;
  worker.Run(FirstPlan(), result);
  StepPlan thief;
  thief.step = 2;
  thief.num_tokens = 1;
  thief.new_rows.push_back({.row = 0, .num_prompt = 1});
  thief.tokens = {77};
  thief.token_runs.push_back({.row = 0, .start = 0, .begin = 0, .count = 1});
  thief.block_adds = {{0, 0, 5}};
  thief.work.push_back({.row = 0, .start = 0, .count = 1, .sample = 0});
  worker.Run(thief, result);
  EXPECT_EQ(worker.violation(), "");  // not yet: no step has read it
  StepPlan victim = SecondPlan();
  victim.step = 3;
  worker.Run(victim, result);
  EXPECT_NE(worker.violation().find("KV slot"), std::string::npos) << worker.violation();
}

// A row may begin behind KV that another sequence computed, if that KV is of the row's tokens.
TEST(ShadowWorkerTest, BeginsBehindKvFoundInTheCache) {
  for (const int32_t second_token : {11, 12}) {
    ShadowWorker worker(Options());
    StepResult result;
    worker.Run(FirstPlan(), result);
    StepPlan plan;
    plan.step = 2;
    plan.num_tokens = 1;
    plan.new_rows.push_back({.row = 0, .num_prompt = 3});
    plan.tokens = FirstPlan().tokens;
    const bool same = plan.tokens[1] == second_token;
    plan.tokens[1] = second_token;
    plan.token_runs.push_back({.row = 0, .start = 0, .begin = 0, .count = 3});
    plan.block_adds = {{0, 0, 5}, {0, 1, 7}};
    plan.work.push_back({.row = 0, .start = 2, .count = 1, .sample = 0});
    worker.Run(plan, result);
    EXPECT_EQ(worker.violation().empty(), same) << worker.violation();
  }
}

// A copied block is a beginning like one that was found, and its own from then on.
TEST(ShadowWorkerTest, BeginsBehindAClonedBlock) {
  for (const bool in_time : {true, false}) {
    ShadowWorker worker(Options());
    StepResult result;
    worker.Run(FirstPlan(), result);
    StepPlan plan;
    plan.step = 2;
    plan.num_tokens = 2;
    plan.new_rows.push_back({.row = 0, .num_prompt = 4});
    plan.tokens = {10, 11, 12, 99};
    plan.token_runs.push_back({.row = 0, .start = 0, .begin = 0, .count = 4});
    plan.block_adds = {{0, 0, 5}, {0, 1, 7}};
    if (in_time) plan.block_clones = {{.from = 3, .to = 7}};
    plan.work.push_back({.row = 0, .start = 3, .count = 1, .sample = 0});
    plan.work.push_back({.row = 1, .start = 3, .count = 1, .sample = 0});
    worker.Run(plan, result);
    EXPECT_EQ(worker.violation().empty(), in_time) << worker.violation();
  }
}

// Each bad plan is one change to two good ones.
struct BadPlan {
  const char* name;
  const char* complaint;
  void (*spoil)(StepPlan& first, StepPlan& second);
};

class ShadowWorkerBadPlanTest : public testing::TestWithParam<BadPlan> {};

TEST_P(ShadowWorkerBadPlanTest, IsReported) {
  StepPlan first = FirstPlan();
  StepPlan second = SecondPlan();
  GetParam().spoil(first, second);
  ShadowWorker worker(Options());
  StepResult result;
  worker.Run(first, result);
  worker.Run(second, result);
  EXPECT_NE(worker.violation().find(GetParam().complaint), std::string::npos) << worker.violation();
  ShadowWorkerOptions strict = Options();
  strict.abort_on_violation = true;
  const auto run_strictly = [&] {
    ShadowWorker aborting(strict);
    aborting.Run(first, result);
    aborting.Run(second, result);
  };
  EXPECT_DEATH(run_strictly(), "shadow worker");
}

using Plan = StepPlan&;
INSTANTIATE_TEST_SUITE_P(
    All, ShadowWorkerBadPlanTest,
    testing::Values(
        BadPlan{"SkippedStep", "step number", [](Plan, Plan second) { second.step = 3; }},
        BadPlan{"WrongTokenTotal", "num_tokens", [](Plan first, Plan) { first.num_tokens = 4; }},
        BadPlan{"WrongSampleTotal", "num_samples", [](Plan first, Plan) { first.num_samples = 0; }},
        BadPlan{"OverBudget", "budget",
                [](Plan first, Plan) { first.work[0].count = first.num_tokens = 7; }},
        BadPlan{"NoOwner", "without an owner", [](Plan first, Plan) { first.new_rows.clear(); }},
        BadPlan{"NewRowOutOfRange", "new row out of range",
                [](Plan first, Plan) { first.new_rows[0].row = 2; }},
        BadPlan{"WorkOutOfRange", "row out of range",
                [](Plan, Plan second) { second.work[0].row = -1; }},
        BadPlan{"MissingTokens", "not known",
                [](Plan first, Plan) { first.token_runs[0].count = 2; }},
        BadPlan{"GapInTokens", "does not continue",
                [](Plan first, Plan) { first.token_runs[0].start = 1; }},
        BadPlan{"TokensOutOfRange", "token run out of range",
                [](Plan first, Plan) { first.token_runs[0].begin = 1; }},
        BadPlan{"NullBlock", "null block", [](Plan first, Plan) { first.block_adds[1].block = 0; }},
        BadPlan{"BlockOutOfRange", "block out of range",
                [](Plan first, Plan) { first.block_adds[1].block = 8; }},
        BadPlan{"GapInTable", "extended at its end",
                [](Plan first, Plan) { first.block_adds[1].index = 2; }},
        BadPlan{"MissingBlock", "beyond the row's blocks",
                [](Plan first, Plan) { first.block_adds.pop_back(); }},
        BadPlan{"SameBlockTwice", "KV slot",
                [](Plan first, Plan) { first.block_adds[1].block = 5; }},
        BadPlan{"CloneOfNull", "in a clone",
                [](Plan first, Plan) { first.block_clones = {{.from = 0, .to = 3}}; }},
        BadPlan{"CloneOutOfRange", "in a clone",
                [](Plan first, Plan) { first.block_clones = {{.from = 8, .to = 3}}; }},
        BadPlan{"CloneOverTheLiving", "just given",
                [](Plan, Plan second) { second.block_clones = {{.from = 4, .to = 3}}; }},
        BadPlan{"WorkAgain", "computed tokens",
                [](Plan, Plan second) { second.work[0].start = 2; }},
        BadPlan{"WorkAhead", "computed tokens",
                [](Plan, Plan second) { second.work[0].start = 4; }},
        BadPlan{"EmptyWork", "empty work",
                [](Plan, Plan second) { second.work[0].count = second.num_tokens = 0; }},
        BadPlan{"RowTwice", "twice",
                [](Plan, Plan second) {
                  second.work.push_back({1, 4, 1, 1});
                  second.num_tokens = second.num_samples = 2;
                }},
        BadPlan{"EarlySample", "in the middle",
                [](Plan first, Plan) { first.work[0].count = first.num_tokens = 2; }},
        BadPlan{"MoreDrawsThanPositions", "more draws",
                [](Plan, Plan second) { second.work[0].sample = second.num_samples = 2; }},
        BadPlan{"LostSample", "not known",
                [](Plan first, Plan) { first.work[0].sample = first.num_samples = 0; }},
        BadPlan{"BannedOutOfRange", "banned",
                [](Plan first, Plan) { first.new_rows[0].banned_count = 1; }},
        BadPlan{"RowResetByMistake", "not known",
                [](Plan, Plan second) { second.new_rows.push_back({.row = 1}); }}),
    [](const auto& test) { return std::string(test.param.name); });

// Three draws behind a token and two guesses: the row keeps the guesses that equal their draws.
TEST(ShadowWorkerTest, KeepsTheGuessesThatAreRight) {
  const ShadowModel model;
  std::vector<int32_t> text = {10, 11, 12};
  for (int32_t i = 0; i < 4; ++i) text.push_back(model.Next(HashOf(text), 0, {}).token);
  for (int32_t right = 0; right <= 2; ++right) {
    ShadowWorker worker(Options());
    StepResult result;
    StepPlan first = FirstPlan();
    first.block_adds.insert(first.block_adds.end(), {{1, 2, 4}, {1, 3, 6}});
    worker.Run(first, result);
    StepPlan plan = SecondPlan();
    plan.tokens = {right > 0 ? text[4] : 1, right > 1 ? text[5] : 2};
    plan.token_runs = {{.row = 1, .start = 4, .begin = 0, .count = 2}};
    plan.work[0].count = plan.work[0].sample = plan.num_tokens = plan.num_samples = 3;
    worker.Run(plan, result);
    ASSERT_EQ(worker.violation(), "");
    ASSERT_EQ(result.samples.size(), 3u);
    for (int32_t i = 0; i <= right; ++i) EXPECT_EQ(result.samples[i].result.token, text[4 + i]);
    // Goes on behind the last good draw, which the scheduler sends.
    plan.step = 3;
    plan.tokens = {text[4 + right]};
    plan.token_runs = {{.row = 1, .start = 4 + right, .begin = 0, .count = 1}};
    plan.work[0] = {.row = 1, .start = 4 + right, .count = 1, .sample = 1};
    plan.num_tokens = plan.num_samples = 1;
    worker.Run(plan, result);
    EXPECT_EQ(worker.violation(), "");
  }
}

TEST(NullWorkerTest, AnswersEverySampleInPlanOrder) {
  NullWorker worker(7);
  StepPlan plan = FirstPlan();
  plan.work.push_back({.row = 0, .start = 0, .count = 2, .sample = 0});
  plan.work.push_back({.row = 0, .start = 2, .count = 1, .sample = 1});
  StepResult result;
  worker.Run(plan, result);
  ASSERT_EQ(result.samples.size(), 2u);
  EXPECT_EQ(result.step, 1u);
  EXPECT_EQ(result.samples[0].row, 1);
  EXPECT_EQ(result.samples[1].row, 0);
  for (const SampledToken& sample : result.samples) {
    EXPECT_GE(sample.result.token, 0);
    EXPECT_LT(sample.result.token, 7);
    EXPECT_EQ(sample.result.nonfinite, 0);
  }
}

}  // namespace
}  // namespace quire
