// Scheduler when blocks are short: reservations, the watermark, overtaking, preemption and
// resumption.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

using testing::ElementsAre;

// Blocks of 4 tokens; no growth is reserved unless a test says so.
SchedulerConfig Config(int32_t usable_blocks, int32_t max_num_seqs = 8) {
  SchedulerConfig config;
  config.num_blocks = usable_blocks + 1;
  config.block_size = 4;
  config.max_model_len = 400;
  config.max_num_seqs = max_num_seqs;
  config.max_num_batched_tokens = 256;
  config.max_num_queued_reqs = 64;
  config.growth_horizon = 0;
  return config;
}

int32_t PreemptionsOf(const SimulatedEngine& sim, RequestId id) {
  return sim.outcome(id).finish.usage.preemptions;
}

TEST(SchedulerPressureTest, ReservesTheWholePromptAndRoomToGrow) {
  SchedulerConfig config = Config(11);
  config.growth_horizon = 8;
  config.max_num_batched_tokens = 2;  // the reservation counts, not the chunk
  SimulatedEngine sim(config);
  const RequestId first = sim.Add({.prompt_tokens = 8, .max_tokens = 36});
  sim.Schedule();  // 4 of 11 blocks are promised, 1 of them taken
  sim.Add({.prompt_tokens = 9, .max_tokens = 20});
  sim.Schedule();
  sim.Schedule();
  sim.Schedule();
  sim.Schedule();  // the first prompt is done: there is budget left, and 7 - 1 blocks for 5
  EXPECT_EQ(sim.load().running, 2);
  sim.Add({.prompt_tokens = 3, .max_tokens = 2});
  sim.Schedule();
  EXPECT_EQ(sim.load().running, 2);  // 2 are free of promises, and 2 have to stay so
  EXPECT_GT(sim.load().free_blocks, 3);
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(first);
}

TEST(SchedulerPressureTest, LeavesABlockForEveryRunningSequenceWhenItAdmits) {
  for (const int32_t usable : {9, 10}) {
    SimulatedEngine sim(Config(usable));
    sim.Add({.prompt_tokens = 8, .max_tokens = 2});
    sim.Add({.prompt_tokens = 8, .max_tokens = 2});
    sim.Add({.prompt_tokens = 16, .max_tokens = 2});  // 4 blocks, and 2 for the running sequences
    sim.Schedule();
    EXPECT_EQ(sim.load().running, usable == 10 ? 3 : 2);
    sim.RunToEnd(1);
  }
}

TEST(SchedulerPressureTest, LeavesOnePercentFreeWhenThatIsMore) {
  for (const int32_t usable : {302, 303}) {
    SchedulerConfig config = Config(usable);
    config.max_num_batched_tokens = 2000;
    config.max_model_len = 1300;
    SimulatedEngine sim(config);
    sim.Add({.prompt_tokens = 400, .max_tokens = 2});  // 100 blocks
    sim.Add({.prompt_tokens = 800, .max_tokens = 2});  // 200 blocks, and 3 to stay free
    sim.Schedule();
    EXPECT_EQ(sim.load().running, usable == 303 ? 2 : 1);
    sim.RunToEnd(1);
  }
}

TEST(SchedulerPressureTest, AdmitsTheLargestRequestWhenNothingRuns) {
  SimulatedEngine sim(Config(10));
  const RequestId id = sim.Add({.prompt_tokens = 40, .max_tokens = 1});
  sim.Schedule();
  EXPECT_EQ(sim.ShareOf(id).count, 40);
  EXPECT_EQ(sim.load().free_blocks, 0);
  sim.RunToEnd(1);
}

// Four sequences need 21 blocks in the end; the pool has 15.
TEST(SchedulerPressureTest, PreemptsTheLatestArrivalOfTheLowestPriority) {
  for (const int32_t depth : {1, 2, 3}) {
    SimulatedEngine sim(Config(15));
    const RequestId oldest = sim.Add({.prompt_tokens = 16, .max_tokens = 8, .arrival_ns = 1});
    const RequestId victim = sim.Add({.prompt_tokens = 16, .max_tokens = 8, .arrival_ns = 2});
    const RequestId urgent =
        sim.Add({.prompt_tokens = 16, .max_tokens = 8, .priority = 1, .arrival_ns = 3});
    sim.Schedule();
    ASSERT_EQ(sim.load().running, 3);
    EXPECT_EQ(sim.load().free_blocks, 3);
    const RequestId filler = sim.Add({.prompt_tokens = 1, .max_tokens = 12, .priority = 2});
    sim.now_ns = 77;
    sim.RunToEnd(depth);
    EXPECT_EQ(PreemptionsOf(sim, oldest), 0);
    EXPECT_GT(PreemptionsOf(sim, victim), 0);
    EXPECT_EQ(sim.outcome(oldest).finish.timings.preempted_ns, 0);
    const RequestTimings& at = sim.outcome(victim).finish.timings;
    EXPECT_GE(at.preempted_ns, 77);
    EXPECT_LT(at.preempted_ns, at.finished_ns);
    EXPECT_EQ(PreemptionsOf(sim, urgent), 0);
    EXPECT_EQ(PreemptionsOf(sim, filler), 0);
    for (const RequestId id : {oldest, victim, urgent, filler}) sim.ExpectUndisturbed(id);
  }
}

// Two sequences of 8 tokens share 6 blocks. After 12 tokens they hold 3 each, and the first
// sequence gets its fourth block by preempting the second.
struct Pair {
  Pair()
      : sim(Config(6)),
        first(sim.Add({.prompt_tokens = 8, .max_tokens = 12})),
        second(sim.Add({.prompt_tokens = 8, .max_tokens = 12})) {}

  // One step at a time, until there is a preemption.
  void RunToPreemption(int32_t depth) {
    while (sim.preempted() == 0) {
      while (sim.steps_in_flight() == depth) sim.Retire();
      if (!sim.Schedule()) sim.Retire();
    }
  }

  SimulatedEngine sim;
  RequestId first;
  RequestId second;
};

TEST(SchedulerPressureTest, ResumesWithPromptAndOutputBehindTheOldPromptBoundary) {
  Pair pair;
  pair.RunToPreemption(1);
  SimulatedEngine& sim = pair.sim;
  EXPECT_EQ(sim.load().waiting, 1);
  const int32_t known = 8 + static_cast<int32_t>(sim.outcome(pair.second).tokens.size());
  EXPECT_EQ(known, 13);
  EXPECT_EQ(sim.load().waiting_tokens, known);
  while (sim.ShareOf(pair.second).count == 0) {
    if (sim.steps_in_flight() > 0) sim.Retire();
    sim.Schedule();
  }
  // The first of its blocks was not needed by the other one.
  EXPECT_EQ(sim.ShareOf(pair.second), (Share{pair.second, 4, known - 4, true}));
  ASSERT_EQ(sim.last_step_plan().new_rows.size(), 1u);
  EXPECT_EQ(sim.last_step_plan().new_rows[0].num_prompt, 8);
  std::vector<int32_t> tokens = PromptOf(pair.second, sim.spec(pair.second), 1000);
  const std::vector<int32_t>& output = sim.outcome(pair.second).tokens;
  tokens.insert(tokens.end(), output.begin(), output.end());
  EXPECT_EQ(sim.last_step_plan().tokens, tokens);
  sim.RunToEnd(1);
  sim.ExpectUndisturbed(pair.first);
  sim.ExpectUndisturbed(pair.second);
  EXPECT_EQ(PreemptionsOf(sim, pair.first), 0);
  EXPECT_EQ(PreemptionsOf(sim, pair.second), 1);
}

TEST(SchedulerPressureTest, DeliversTokensInFlightOfAPreemptedSequence) {
  Pair pair;
  pair.RunToPreemption(3);
  SimulatedEngine& sim = pair.sim;
  const size_t before = sim.outcome(pair.second).tokens.size();
  const int32_t in_flight = sim.steps_in_flight();
  ASSERT_GT(in_flight, 0);
  EXPECT_EQ(sim.load().waiting, 1);
  while (sim.steps_in_flight() > 0) sim.Retire();
  EXPECT_GT(sim.outcome(pair.second).tokens.size(), before);
  EXPECT_EQ(sim.load().waiting_tokens,
            8 + static_cast<int64_t>(sim.outcome(pair.second).tokens.size()));
  sim.RunToEnd(3);
  sim.ExpectUndisturbed(pair.second);
}

TEST(SchedulerPressureTest, WaitsForDrainingBlocksBeforePreempting) {
  SimulatedEngine sim(Config(9));
  const RequestId first = sim.Add({.prompt_tokens = 8, .max_tokens = 10});
  const RequestId second = sim.Add({.prompt_tokens = 8, .max_tokens = 10});
  const RequestId third = sim.Add({.prompt_tokens = 8, .max_tokens = 10});
  sim.Schedule();
  ASSERT_EQ(sim.load().running, 3);
  for (int i = 0; i < 4; ++i) {
    sim.Schedule();
    sim.Retire();
  }
  EXPECT_EQ(sim.load().free_blocks, 0);  // three blocks each, full in this step
  sim.Cancel(third);
  sim.Schedule();  // the end of the third is in flight: both wait
  EXPECT_TRUE(sim.last_plan().empty());
  EXPECT_EQ(sim.load().running, 2);
  sim.RunToEnd(2);
  EXPECT_EQ(sim.preempted(), 0);
  sim.ExpectUndisturbed(first);
  sim.ExpectUndisturbed(second);
}

// Requests of equal priority in a small pool preempt each other at most twice, the oldest never.
TEST(SchedulerPressureTest, PreemptsARequestAtMostTwiceForItsEquals) {
  int32_t twice = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    SimulatedEngine sim(Config(24, 6));
    const int32_t count = 24;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t max_tokens = 20 + static_cast<int32_t>(random() % 60);
      sim.Add({.prompt_tokens = 4, .max_tokens = max_tokens, .arrival_ns = i});
    }
    sim.RunToEnd(1 + seed % 3);
    EXPECT_GT(sim.preempted(), 0);
    EXPECT_EQ(PreemptionsOf(sim, 1), 0);
    for (RequestId id = 1; id <= count; ++id) {
      EXPECT_LE(PreemptionsOf(sim, id), 2);
      twice += PreemptionsOf(sim, id) == 2;
      sim.ExpectUndisturbed(id);
    }
  }
  EXPECT_GT(twice, 0);
}

TEST(SchedulerPressureTest, PreemptsLowerPrioritiesWithoutLimit) {
  SimulatedEngine sim(Config(80, 2));
  const RequestId patient = sim.Add({.prompt_tokens = 4, .max_tokens = 300, .priority = -1});
  for (int32_t round = 1; round <= 3; ++round) {
    const auto step = [&] {
      if (!sim.Schedule() || sim.steps_in_flight() > 1) sim.Retire();
    };
    while (sim.ShareOf(patient).count == 0) step();
    const RequestId urgent = sim.Add({.prompt_tokens = 4, .max_tokens = 200});
    while (!sim.outcome(urgent).finished) step();
    EXPECT_EQ(sim.preempted(), round);
    sim.ExpectUndisturbed(urgent);
    EXPECT_EQ(PreemptionsOf(sim, urgent), 0);
  }
  sim.RunToEnd(2);
  EXPECT_EQ(PreemptionsOf(sim, patient), 3);
  sim.ExpectUndisturbed(patient);
}

// A large request waits at the head; small ones that fit keep arriving.
TEST(SchedulerPressureTest, LetsAtMost32AdmissionsPassAWaitingRequest) {
  SimulatedEngine sim(Config(20, 4));
  std::vector<RequestId> small;
  const auto add_small = [&] {
    small.push_back(sim.Add({.prompt_tokens = 4, .max_tokens = 5, .arrival_ns = sim.now_ns}));
  };
  add_small();
  add_small();
  sim.Schedule();
  const RequestId large = sim.Add({.prompt_tokens = 72, .max_tokens = 4, .arrival_ns = sim.now_ns});
  const int32_t admitted_before = sim.admitted();
  int32_t steps = 0, passed = 0;
  while (sim.ShareOf(large).count == 0) {
    ASSERT_LT(++steps, 400);
    ++sim.now_ns;
    passed = sim.admitted() - admitted_before;
    while (sim.load().waiting < 3) add_small();
    if (!sim.Schedule() || sim.steps_in_flight() > 1) sim.Retire();
  }
  // The count is compared before each admission of a step, so the requests of the last such step,
  // three beside the one that runs, may pass it together.
  EXPECT_GE(passed, 32);
  EXPECT_LE(passed, 32 + 2);
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(large);
}

TEST(SchedulerPressureTest, LooksNoFurtherThan16RequestsDownTheQueue) {
  for (const int32_t num_large : {15, 16}) {
    SimulatedEngine sim(Config(20, 8));
    sim.Add({.prompt_tokens = 8, .max_tokens = 4});
    sim.Schedule();
    for (int32_t i = 0; i < num_large; ++i) sim.Add({.prompt_tokens = 72, .max_tokens = 4});
    const RequestId small = sim.Add({.prompt_tokens = 4, .max_tokens = 1});
    sim.Schedule();
    EXPECT_EQ(sim.ShareOf(small).count, num_large == 15 ? 4 : 0);
    sim.RunToEnd(2);
  }
}

// A prefill has its blocks reserved, so it preempts no sequence, whatever decoding sequences take.
TEST(SchedulerPressureTest, FinishesAPrefillWithoutPreempting) {
  SchedulerConfig config = Config(16);
  config.max_num_batched_tokens = 5;
  SimulatedEngine sim(config);
  const RequestId prefill = sim.Add({.prompt_tokens = 40, .max_tokens = 1, .priority = 1});
  const RequestId decode = sim.Add({.prompt_tokens = 4, .max_tokens = 30});
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(prefill);
  sim.ExpectUndisturbed(decode);
  EXPECT_EQ(PreemptionsOf(sim, prefill), 0);
}

// One step after another, until so many have retired or nothing can run.
void RunSteps(SimulatedEngine& sim, int steps) {
  for (int i = 0; i < steps && sim.Schedule(); ++i) {
    while (sim.steps_in_flight() > 0) sim.Retire();
  }
}

// A request has room in the pool, but not beside a pinned session: it waits, and holds no one up.
TEST(SchedulerPressureTest, ARequestWithoutRoomBesidePinsHoldsNoOneUp) {
  SchedulerConfig config = SessionConfig(/*usable_blocks=*/40, /*num_pages=*/0, 160);
  config.sessions.max_pinned_share = 0.25;
  SimulatedEngine sim(config);
  sim.CreateSession(0, "s");
  sim.Add({.prompt_tokens = 37, .max_tokens = 3, .session = "s"});
  sim.RunToEnd(1);
  ASSERT_TRUE(sim.scheduler().sessions().Pin(0, "s", sim.now_ns).ok());
  const RequestId large = sim.Add({.prompt_tokens = 125, .max_tokens = 4, .tenant = 7});
  RunSteps(sim, 1);
  EXPECT_TRUE(sim.load().held_up);
  for (int i = 0; i < 100; ++i) {  // more than may overtake it
    const RequestId small =
        sim.Add({.prompt_tokens = 3, .max_tokens = 2, .tenant = i % 2 == 0 ? 9u : 0u});
    RunSteps(sim, 20);
    ASSERT_TRUE(sim.outcome(small).finished) << i;
  }
  EXPECT_FALSE(sim.outcome(large).finished);
  EXPECT_TRUE(sim.load().held_up);
  // A turn of the pinned session itself has its blocks already.
  const RequestId turn = sim.Add({.prompt_tokens = 90, .max_tokens = 3, .session = "s"});
  RunSteps(sim, 50);
  EXPECT_TRUE(sim.outcome(turn).finished);
  ASSERT_TRUE(sim.scheduler().sessions().Unpin(0, "s", sim.now_ns).ok());
  RunSteps(sim, 50);
  EXPECT_TRUE(sim.outcome(large).finished);
  EXPECT_FALSE(sim.load().held_up);
}

}  // namespace
}  // namespace quire
