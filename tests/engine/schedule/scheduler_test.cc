// Scheduler: the plans of one request, or of a few with room for all; budget, chunks, order,
// ends.
// Covers engine/schedule/live_sequences.cc, engine/schedule/plan_writer.cc,
// engine/schedule/step_planner.cc
#include "engine/schedule/scheduler.h"
#include "engine/schedule/plan_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

using testing::ElementsAre;

SchedulerConfig Config() {
  SchedulerConfig config;
  config.num_blocks = 101;
  config.block_size = 4;
  config.max_model_len = 64;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 32;
  config.max_num_queued_reqs = 16;
  config.growth_horizon = 8;
  return config;
}

ShadowModel AlwaysEos() {
  ShadowModel model;
  model.eos_probability = 1.0;
  return model;
}

TEST(SchedulerTest, ComputesAPromptInOneStepAndSamples) {
  SimulatedEngine sim(Config());
  const RequestId id = sim.Add({.prompt_tokens = 6, .max_tokens = 3});
  ASSERT_TRUE(sim.Schedule());
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{id, 0, 6, true}));
  const StepPlan& plan = sim.last_step_plan();
  EXPECT_EQ(plan.step, 1u);
  EXPECT_EQ(plan.num_tokens, 6);
  EXPECT_EQ(plan.num_samples, 1);
  EXPECT_EQ(plan.tokens, PromptOf(id, sim.spec(id), 1000));
  EXPECT_EQ(plan.block_adds.size(), 2u);
  EXPECT_TRUE(plan.ids.empty());
}

TEST(SchedulerTest, DecodesWithoutSendingTokensBack) {
  SimulatedEngine sim(Config());
  const RequestId id = sim.Add({.prompt_tokens = 6, .max_tokens = 5});
  sim.Schedule();
  sim.Schedule();  // the first step's token is not known here yet
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{id, 6, 1, true}));
  EXPECT_TRUE(sim.last_step_plan().token_runs.empty());
  EXPECT_TRUE(sim.last_step_plan().new_rows.empty());
  EXPECT_TRUE(sim.last_step_plan().block_adds.empty());  // position 6 is in the second block
  sim.Retire();
  sim.Retire();
  sim.Schedule();
  sim.Schedule();
  EXPECT_EQ(sim.last_step_plan().block_adds.size(), 1u);  // position 8 opens the third
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(id);
}

TEST(SchedulerTest, NeverPlansPastMaxTokens) {
  SimulatedEngine sim(Config());
  const RequestId id = sim.Add({.prompt_tokens = 6, .max_tokens = 2});
  EXPECT_TRUE(sim.Schedule());
  EXPECT_TRUE(sim.Schedule());
  EXPECT_FALSE(sim.Schedule());
  sim.RunToEnd(3);
  EXPECT_EQ(sim.outcome(id).tokens.size(), 2u);
  EXPECT_EQ(sim.outcome(id).finish.reason, FinishReason::kMaxTokens);
}

TEST(SchedulerTest, EndsAtTheContextWhenItComesBeforeMaxTokens) {
  SimulatedEngine sim(Config());
  const RequestId beyond = sim.Add({.prompt_tokens = 61, .max_tokens = 1000});
  const RequestId exact = sim.Add({.prompt_tokens = 61, .max_tokens = 3});
  sim.RunToEnd(3);
  EXPECT_EQ(sim.outcome(beyond).tokens.size(), 3u);
  EXPECT_EQ(sim.outcome(beyond).finish.reason, FinishReason::kContextLimit);
  EXPECT_EQ(sim.outcome(exact).tokens.size(), 3u);
  EXPECT_EQ(sim.outcome(exact).finish.reason, FinishReason::kMaxTokens);
}

TEST(SchedulerTest, StopsAtEosBeforeStopTokensBeforeMaxTokens) {
  SimulatedEngine sim(Config(), AlwaysEos());
  const RequestId eos = sim.Add({.max_tokens = 1, .stop_token_ids = {0}});
  const RequestId stop = sim.Add({.max_tokens = 1, .stops_at_eos = false, .stop_token_ids = {0}});
  const RequestId max = sim.Add({.max_tokens = 1, .stops_at_eos = false});
  sim.RunToEnd(2);
  EXPECT_EQ(sim.outcome(eos).finish.reason, FinishReason::kEos);
  EXPECT_EQ(sim.outcome(eos).finish.stop_token, 0);
  EXPECT_THAT(sim.outcome(eos).tokens, ElementsAre(0));
  EXPECT_EQ(sim.outcome(stop).finish.reason, FinishReason::kStopToken);
  EXPECT_EQ(sim.outcome(stop).finish.stop_token, 0);
  EXPECT_EQ(sim.outcome(max).finish.reason, FinishReason::kMaxTokens);
  EXPECT_EQ(sim.outcome(max).finish.stop_token, -1);
}

TEST(SchedulerTest, BansEndTokensUntilMinTokens) {
  SimulatedEngine sim(Config(), AlwaysEos());
  const RequestId id =
      sim.Add({.prompt_tokens = 6, .max_tokens = 9, .min_tokens = 3, .stop_token_ids = {17, 18}});
  sim.Schedule();
  const NewRow& row = sim.last_step_plan().new_rows.at(0);
  EXPECT_EQ(row.min_known, 9);
  EXPECT_EQ(row.num_prompt, 6);
  EXPECT_EQ(row.banned_count, 3u);
  EXPECT_THAT(sim.last_step_plan().ids, testing::UnorderedElementsAre(0, 17, 18));
  sim.RunToEnd(2);
  EXPECT_EQ(sim.outcome(id).tokens.size(), 4u);
  EXPECT_EQ(sim.outcome(id).finish.reason, FinishReason::kEos);
  sim.ExpectUndisturbed(id);
}

// Not even when a worker ignores the ban.
TEST(SchedulerTest, EndsWithNoStopTokenBeforeMinTokens) {
  Scheduler scheduler(Config());
  auto request = std::make_unique<Request>();
  request->id = 9;
  request->prompt = {1, 2};
  request->sampling.max_tokens = 10;
  request->sampling.min_tokens = 2;
  request->sampling.eos_token_ids = {7};
  scheduler.Add(std::move(request));
  StepPlan plan;
  SchedulerEvents events;
  for (size_t output = 1; output <= 3; ++output) {
    ASSERT_TRUE(scheduler.Schedule(1, plan, events));
    StepResult result;
    result.step = plan.step;
    result.samples.push_back({plan.work.at(0).row, {.token = 7}});
    scheduler.Retire(result, 1, events);
    EXPECT_EQ(events.tokens.size(), output);
    EXPECT_EQ(events.finishes.size(), output == 3 ? 1u : 0u);
  }
}

// The output [1 2 3]* with three repeats of at most `longest` tokens, from `min_tokens` on.
int TokensUntilLoop(int32_t longest, int32_t min_tokens, const std::vector<int32_t>& pattern) {
  Sequence sequence;
  auto request = std::make_unique<Request>();
  request->sampling.max_tokens = 40;
  request->sampling.min_tokens = min_tokens;
  request->sampling.loop_max_tokens = longest;
  request->sampling.loop_min_repeats = 3;
  sequence.request = std::move(request);
  sequence.hard_end = 1000;
  for (size_t i = 0; i < 40; ++i) {
    sequence.output.push_back(pattern[i % pattern.size()]);
    const FinishReason reason = TakeToken(sequence);
    if (reason == FinishReason::kLoop) return static_cast<int>(i) + 1;
    if (reason != FinishReason::kNone) break;
  }
  return 0;
}

TEST(SchedulerTest, EndsALoopOfAnyLengthThatWasAskedFor) {
  EXPECT_EQ(TokensUntilLoop(1, 0, {7}), 3);
  EXPECT_EQ(TokensUntilLoop(3, 0, {1, 2, 3}), 9);
  EXPECT_EQ(TokensUntilLoop(2, 0, {1, 2, 3}), 0);
  EXPECT_EQ(TokensUntilLoop(256, 0, {1, 2, 1, 3}), 12);
  EXPECT_EQ(TokensUntilLoop(256, 0, {1, 1, 2}), 9) << "two of a kind are no loop of three";
  EXPECT_EQ(TokensUntilLoop(3, 20, {1, 2, 3}), 20);
  EXPECT_EQ(TokensUntilLoop(0, 0, {7}), 0);
}

TEST(SchedulerTest, CopiesSamplingAndBiasesToTheRow) {
  Scheduler scheduler(Config());
  auto request = std::make_unique<Request>();
  request->id = 9;
  request->prompt = {1, 2};
  request->sampling.max_tokens = 1;
  request->sampling.row.temperature = 0.25f;
  request->sampling.row.seed = 77;
  request->sampling.logit_bias = {{5, 1.5f}, {6, -2.0f}};
  request->sampling.bad_words = {3, ~4};
  request->sampling.allowed_token_ids = {8};
  request->sampling.dry_breaker_ids = {10, 11, 12};
  scheduler.Add(std::move(request));
  StepPlan plan;
  SchedulerEvents events;
  ASSERT_TRUE(scheduler.Schedule(1, plan, events));
  ASSERT_EQ(plan.new_rows.size(), 1u);
  EXPECT_EQ(plan.new_rows[0].sampling.temperature, 0.25f);
  EXPECT_EQ(plan.new_rows[0].sampling.seed, 77u);
  ASSERT_EQ(plan.new_rows[0].bias_count, 2u);
  EXPECT_EQ(plan.biases[plan.new_rows[0].bias_begin + 1].token, 6);
  EXPECT_EQ(plan.biases[plan.new_rows[0].bias_begin + 1].bias, -2.0f);
  EXPECT_THAT(plan.ids, testing::ElementsAre(3, ~4, 8, 10, 11, 12));
  EXPECT_EQ(plan.new_rows[0].banned_count, 0u);
  EXPECT_EQ(plan.new_rows[0].bad_word_count, 2u);
  EXPECT_EQ(plan.new_rows[0].allowed_count, 1u);
  EXPECT_EQ(plan.new_rows[0].breaker_count, 3u);
}

TEST(SchedulerTest, SpendsTheBudgetOnDecodesThenPrefillsThenAdmissions) {
  SchedulerConfig config = Config();
  config.max_num_batched_tokens = 10;
  SimulatedEngine sim(config);
  const RequestId decoding = sim.Add({.prompt_tokens = 4, .max_tokens = 20});
  sim.Schedule();
  const RequestId prefilling = sim.Add({.prompt_tokens = 16, .max_tokens = 4});
  sim.Schedule();
  EXPECT_THAT(sim.last_plan(),
              ElementsAre(Share{decoding, 4, 1, true}, Share{prefilling, 0, 9, false}));
  const RequestId waiting = sim.Add({.prompt_tokens = 8, .max_tokens = 4});
  sim.Schedule();
  EXPECT_THAT(sim.last_plan(),
              ElementsAre(Share{decoding, 5, 1, true}, Share{prefilling, 9, 7, true},
                          Share{waiting, 0, 2, false}));
  EXPECT_EQ(sim.last_step_plan().num_tokens, 10);
  sim.RunToEnd(3);
  for (const RequestId id : {decoding, prefilling, waiting}) sim.ExpectUndisturbed(id);
}

TEST(SchedulerTest, ServesTheShortestPrefillFirstButStarvesNone) {
  SchedulerConfig config = Config();
  config.max_num_batched_tokens = 4;
  SimulatedEngine sim(config);
  const RequestId longest = sim.Add({.prompt_tokens = 60, .max_tokens = 1});
  sim.Schedule();
  EXPECT_EQ(sim.ShareOf(longest).count, 4);
  const RequestId shorter = sim.Add({.prompt_tokens = 40, .max_tokens = 1});
  sim.Schedule();  // the very long one leaves half to the one that waits
  EXPECT_EQ(sim.ShareOf(longest).count, 2);
  EXPECT_EQ(sim.ShareOf(shorter).count, 2);
  for (int step = 0; step < 4; ++step) {
    sim.Retire();
    sim.Schedule();
    EXPECT_EQ(sim.ShareOf(longest).count, 0);
    EXPECT_EQ(sim.ShareOf(shorter).count, 4);
  }
  sim.Retire();
  sim.Schedule();  // unserved for long enough
  EXPECT_EQ(sim.ShareOf(longest).count, 2);
  EXPECT_EQ(sim.ShareOf(shorter).count, 2);
  sim.RunToEnd(2);
}

TEST(SchedulerTest, GivesALongPromptTheBudgetWhenNoShorterOneWaits) {
  SchedulerConfig config = Config();
  config.max_num_batched_tokens = 8;
  SimulatedEngine sim(config);
  const RequestId first = sim.Add({.prompt_tokens = 40});
  sim.Add({.prompt_tokens = 50});
  sim.Schedule();
  EXPECT_EQ(sim.ShareOf(first).count, 8);
  const RequestId small = sim.Add({.prompt_tokens = 3});
  sim.Schedule();  // 4 are its half, 3 go to the small one, and the one left over comes back to it
  EXPECT_EQ(sim.ShareOf(first).count, 5);
  EXPECT_EQ(sim.ShareOf(small).count, 3);
  sim.RunToEnd(2);
}

TEST(SchedulerTest, KeepsFewPrefillsUnfinished) {
  SchedulerConfig config = Config();
  config.max_num_batched_tokens = 8;
  config.max_partial_prefills = 1;
  SimulatedEngine sim(config);
  const RequestId first = sim.Add({.prompt_tokens = 20, .max_tokens = 1});
  const RequestId second = sim.Add({.prompt_tokens = 12, .max_tokens = 1});
  const RequestId small = sim.Add({.prompt_tokens = 3, .max_tokens = 1});
  sim.Schedule();
  EXPECT_GT(sim.ShareOf(first).count, 0);
  EXPECT_EQ(sim.ShareOf(second).count, 0);
  EXPECT_EQ(sim.ShareOf(small).count, 3);  // begins and ends in this step
  sim.RunToEnd(2);
}

TEST(SchedulerTest, AdmitsByPriorityThenArrival) {
  SchedulerConfig config = Config();
  config.max_num_seqs = 3;
  SimulatedEngine sim(config);
  const RequestId late = sim.Add({.arrival_ns = 30});
  const RequestId low = sim.Add({.priority = -1, .arrival_ns = 10});
  const RequestId early = sim.Add({.arrival_ns = 20});
  const RequestId high = sim.Add({.priority = 5, .arrival_ns = 40});
  sim.Schedule();
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{high, 0, 4, true}, Share{early, 0, 4, true},
                                           Share{late, 0, 4, true}));
  EXPECT_EQ(sim.load().waiting, 1);
  sim.RunToEnd(1);
  sim.ExpectUndisturbed(low);
}

TEST(SchedulerTest, DropsTokensAfterTheEndAndKeepsTheRowUntilThen) {
  SchedulerConfig config = Config();
  config.max_num_seqs = 1;
  SimulatedEngine sim(config, AlwaysEos());
  const RequestId first = sim.Add({});
  const RequestId second = sim.Add({});
  sim.Schedule();
  sim.Schedule();
  sim.Retire();  // the first token is EOS; another step of the row is in flight
  EXPECT_TRUE(sim.outcome(first).finished);
  EXPECT_LT(sim.load().free_blocks, sim.load().total_blocks);
  EXPECT_FALSE(sim.Schedule());
  sim.Retire();
  EXPECT_EQ(sim.load().free_blocks, sim.load().total_blocks);
  EXPECT_EQ(sim.outcome(first).tokens.size(), 1u);
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.ShareOf(second).count, 4);
  EXPECT_EQ(sim.last_step_plan().step, 3u);  // a call that found nothing took no number
  sim.RunToEnd(1);
}

TEST(SchedulerTest, EndsWaitingAndRunningRequestsAtTheirDeadline) {
  SchedulerConfig config = Config();
  config.max_num_seqs = 2;
  SimulatedEngine sim(config);
  EXPECT_EQ(sim.scheduler().NextDeadline(), kNoDeadline);
  const RequestId running = sim.Add({.max_tokens = 50, .deadline_ns = 200});
  const RequestId other = sim.Add({.max_tokens = 50});
  const RequestId waiting = sim.Add({.deadline_ns = 100});
  EXPECT_EQ(sim.scheduler().NextDeadline(), 100);
  sim.Schedule();
  sim.now_ns = 99;
  sim.ExpireDeadlines();
  EXPECT_FALSE(sim.outcome(waiting).finished);
  sim.now_ns = 100;
  sim.ExpireDeadlines();
  EXPECT_EQ(sim.outcome(waiting).finish.reason, FinishReason::kDeadline);
  EXPECT_EQ(sim.scheduler().NextDeadline(), 200);
  sim.now_ns = 1000;
  sim.ExpireDeadlines();
  EXPECT_EQ(sim.outcome(running).finish.reason, FinishReason::kDeadline);
  EXPECT_EQ(sim.scheduler().NextDeadline(), kNoDeadline);
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(other);
}

// However many deadlines pass at once, one call stays short; the next one is due at once.
TEST(SchedulerTest, EndsAtMost64DeadlinesACallEarliestFirst) {
  SimulatedEngine sim(Config());
  constexpr int32_t kRequests = 150;
  // The later one is added, the earlier it ends.
  for (int32_t i = 0; i < kRequests; ++i) sim.Add({.deadline_ns = 1000 - i});
  sim.Schedule();
  sim.now_ns = 2000;
  int32_t ended = 0;
  for (const int32_t expected : {64, 64, 22, 0}) {
    EXPECT_EQ(sim.scheduler().NextDeadline() <= sim.now_ns, expected > 0);
    sim.ExpireDeadlines();
    ASSERT_EQ(sim.last_finishes().size(), static_cast<size_t>(expected));
    for (const FinishEvent& finish : sim.last_finishes()) {
      EXPECT_EQ(finish.id, static_cast<RequestId>(kRequests - ended++));
    }
  }
  sim.Retire();
  sim.ExpectIdle();
}

TEST(SchedulerTest, FailsOnlyTheRowWithoutFiniteLogits) {
  ShadowModel model;
  model.nan_probability = 0.2;
  SimulatedEngine sim(Config(), model);
  int32_t num_failed = 0;
  for (int i = 0; i < 12; ++i) sim.Add({.max_tokens = 6});
  sim.RunToEnd(2);
  for (RequestId id = 1; id <= 12; ++id) {
    sim.ExpectUndisturbed(id);
    num_failed += sim.outcome(id).finish.reason == FinishReason::kNumeric;
  }
  EXPECT_GT(num_failed, 0);
  EXPECT_LT(num_failed, 12);
}

TEST(SchedulerTest, ContinuesFromItsTokensAfterAWorkerDeath) {
  SimulatedEngine sim(Config());
  const RequestId id = sim.Add({.prompt_tokens = 6, .max_tokens = 8});
  sim.Schedule();
  sim.Retire();
  sim.Schedule();
  sim.Schedule();
  sim.KillWorker();
  EXPECT_EQ(sim.steps_in_flight(), 0);
  EXPECT_EQ(sim.load().waiting, 1);
  EXPECT_EQ(sim.load().waiting_tokens, 7);
  sim.Schedule();
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{id, 0, 7, true}));
  EXPECT_EQ(sim.last_step_plan().step, 1u);
  EXPECT_EQ(sim.last_step_plan().new_rows.at(0).num_prompt, 6);
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(id);
  EXPECT_EQ(sim.outcome(id).finish.usage.preemptions, 0);
}

TEST(SchedulerTest, EndsARequestThatRanAtThreeWorkerDeaths) {
  SchedulerConfig config = Config();
  config.max_num_seqs = 1;
  SimulatedEngine sim(config);
  const RequestId running = sim.Add({.max_tokens = 20});
  const RequestId waiting = sim.Add({.max_tokens = 20});
  for (int death = 1; death <= 3; ++death) {
    sim.Schedule();
    sim.KillWorker();
    EXPECT_EQ(sim.outcome(running).finished, death == 3);
  }
  EXPECT_EQ(sim.outcome(running).finish.reason, FinishReason::kEngineFault);
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(waiting);  // it was not there
}

TEST(SchedulerTest, FitsRequestsThatCanRunAlone) {
  SchedulerConfig config = Config();
  config.num_blocks = 4;  // 12 positions
  SimulatedEngine sim(config);
  const Scheduler& scheduler = sim.scheduler();
  EXPECT_TRUE(scheduler.Fits(6, 7));  // the thirteenth token is never computed
  EXPECT_FALSE(scheduler.Fits(6, 8));
  EXPECT_TRUE(scheduler.Fits(12, 1));
  EXPECT_FALSE(scheduler.Fits(13, 1));
  EXPECT_FALSE(scheduler.Fits(0, 1));
  EXPECT_FALSE(scheduler.Fits(1, 0));
  EXPECT_FALSE(scheduler.Fits(int64_t{1} << 40, 1));
  EXPECT_FALSE(scheduler.Fits(1, int64_t{1} << 62));
  const Scheduler large(Config());
  EXPECT_TRUE(large.Fits(63, int64_t{1} << 62));  // the context ends it
  EXPECT_FALSE(large.Fits(64, 1));
  const RequestId id = sim.Add({.prompt_tokens = 6, .max_tokens = 7});
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(id);
}

TEST(SchedulerTest, ReportsUsageAndInstants) {
  SimulatedEngine sim(Config());
  sim.now_ns = 100;
  const RequestId id = sim.Add({.prompt_tokens = 6, .max_tokens = 3, .arrival_ns = 90});
  sim.now_ns = 110;
  sim.Schedule();
  sim.now_ns = 120;
  sim.Retire();
  sim.now_ns = 130;
  sim.Schedule();
  sim.Schedule();
  sim.Retire();
  sim.now_ns = 140;
  sim.Retire();
  const FinishEvent& finish = sim.outcome(id).finish;
  EXPECT_EQ(finish.usage.prompt_tokens, 6);
  EXPECT_EQ(finish.usage.completion_tokens, 3);
  EXPECT_EQ(finish.timings.arrival_ns, 90);
  EXPECT_EQ(finish.timings.admitted_ns, 110);
  EXPECT_EQ(finish.timings.first_token_ns, 120);
  EXPECT_EQ(finish.timings.last_token_ns, 140);
  EXPECT_EQ(finish.timings.finished_ns, 140);
}

TEST(SchedulerTest, CountsItsLoad) {
  SchedulerConfig config = Config();
  config.max_num_seqs = 1;
  SimulatedEngine sim(config);
  sim.Add({.prompt_tokens = 6, .max_tokens = 9});
  sim.Add({.prompt_tokens = 7, .max_tokens = 9});
  EXPECT_EQ(sim.load().waiting, 2);
  EXPECT_EQ(sim.load().waiting_tokens, 13);
  EXPECT_EQ(sim.admitted(), 0);
  sim.Schedule();
  EXPECT_EQ(sim.admitted(), 1);
  sim.Retire();
  EXPECT_EQ(sim.load().running, 1);
  EXPECT_EQ(sim.load().waiting, 1);
  EXPECT_EQ(sim.load().waiting_tokens, 7);
  EXPECT_EQ(sim.load().tokens_in_flight, 7);
  EXPECT_EQ(sim.load().free_blocks, 98);
  EXPECT_EQ(sim.load().total_blocks, 100);
  sim.Schedule();
  sim.Retire();
  EXPECT_EQ(sim.load().tokens_in_flight, 8);  // a token more known
  EXPECT_EQ(sim.admitted(), 1);
  sim.Add({.prompt_tokens = 5, .max_tokens = 9, .priority = 1});
  sim.KillWorker();
  EXPECT_EQ(sim.load().tokens_in_flight, 0);  // no sequence runs
  EXPECT_EQ(sim.load().waiting_tokens, 8 + 7 + 5);
  sim.Schedule();
  EXPECT_EQ(sim.admitted(), 2);
  EXPECT_EQ(sim.load().tokens_in_flight, 5);
  EXPECT_EQ(sim.load().waiting_tokens, 8 + 7);
  sim.CancelAll(FinishReason::kDraining);
  sim.Retire();
  sim.ExpectIdle();
}

// Runs the same requests with several depths, chunk sizes and pools: the tokens stay the same.
TEST(SchedulerTest, GivesTheSameTokensUnderEverySchedule) {
  ShadowModel model;
  model.eos_probability = 0.05;
  for (const int32_t budget : {1, 3, 7, 32}) {
    for (const int32_t num_blocks : {10, 17, 101}) {
      for (const int32_t depth : {1, 2, 3}) {
        SchedulerConfig config = Config();
        config.max_num_batched_tokens = budget;
        config.num_blocks = num_blocks;
        config.growth_horizon = 0;
        SimulatedEngine sim(config, model);
        for (int i = 0; i < 8; ++i) sim.Add({.prompt_tokens = 3 + 2 * i, .max_tokens = 18});
        sim.RunToEnd(depth);
        for (RequestId id = 1; id <= 8; ++id) sim.ExpectUndisturbed(id);
      }
    }
  }
}

TEST(SchedulerDeathTest, AbortsOnBrokenCalls) {
  SimulatedEngine sim(Config());
  EXPECT_DEATH(sim.Add({.prompt_tokens = 64}), "CHECK failed");
  StepResult result;
  SchedulerEvents events;
  EXPECT_DEATH(sim.scheduler().Retire(result, 1, events), "CHECK failed");
  sim.Add({});
  sim.Schedule();
  result.step = 2;
  EXPECT_DEATH(sim.scheduler().Retire(result, 1, events), "CHECK failed");
  result.step = 1;  // without the sample that the step asked for
  EXPECT_DEATH(sim.scheduler().Retire(result, 1, events), "CHECK failed");
}

}  // namespace
}  // namespace quire
