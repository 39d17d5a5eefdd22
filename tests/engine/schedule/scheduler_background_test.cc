// Background sequences in the scheduler, by counted steps alone: they run where no request does,
// and a request that comes waits for the steps in flight and no longer, whatever they hold.
// Covers engine/schedule/background_claims.cc
#include "engine/schedule/background_claims.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

SchedulerConfig Config() {
  SchedulerConfig config;
  config.block_size = 4;
  config.max_model_len = 128;
  config.num_blocks = 600;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 32;
  config.max_num_queued_reqs = 1000;
  return config;
}

// No output ends by itself: the end token is none of the vocabulary.
ShadowModel Endless() { return {.vocab_size = 50, .eos_token = 50, .eos_probability = 0}; }

class Gaps {
 public:
  explicit Gaps(const SchedulerConfig& config = Config()) : sim(config, Endless()) {
    sim.check_every = 97;
  }
  RequestId Add(int32_t prompt, int32_t output, int32_t priority, TenantId tenant = 0) {
    return sim.Add({.prompt_tokens = prompt,
                    .max_tokens = output,
                    .priority = priority,
                    .arrival_ns = ++sim.now_ns,
                    .tenant = tenant});
  }
  // Plans a step with two in flight.
  bool Step() {
    if (sim.steps_in_flight() == 2) sim.Retire();
    const bool any = sim.Schedule();
    if (!any && sim.steps_in_flight() > 0) sim.Retire();
    return any;
  }
  int32_t TokensOf(RequestId id) const {
    for (const Share& share : sim.last_plan()) {
      if (share.id == id) return share.count;
    }
    return 0;
  }
  // Steps until the request's whole prompt is planned.
  int32_t StepsToFirstToken(RequestId id, int32_t prompt) {
    int32_t planned = 0, steps = 0;
    for (; planned < prompt && steps < 100; ++steps) {
      Step();
      planned += TokensOf(id);
    }
    return steps;
  }
  int32_t rows() const { return static_cast<int32_t>(sim.last_plan().size()); }

  SimulatedEngine sim;
};

TEST(SchedulerBackgroundTest, ARequestTakesTheRowOfABackgroundSequence) {
  for (const TenantId tenant : {TenantId{0}, TenantId{9}}) {
    Gaps gaps;
    for (int i = 0; i < 20; ++i) gaps.Add(8, 100, kBackgroundPriority);
    for (int i = 0; i < 10; ++i) gaps.Step();
    ASSERT_EQ(gaps.rows(), 8) << "the gaps are full";
    const RequestId id = gaps.Add(8, 10, -kMaxPriority, tenant);
    // One step preempts, and the rows are free behind the two in flight.
    EXPECT_LE(gaps.StepsToFirstToken(id, 8), 3);
    EXPECT_EQ(gaps.TokensOf(id), 8) << "its whole prompt";
    EXPECT_EQ(gaps.sim.preempted(), 1);
    for (int i = 0; i < 8; ++i) gaps.Step();
    EXPECT_GE(gaps.rows(), 7) << "the others go on; beside another tenant a flood leaves a row";
  }
}

TEST(SchedulerBackgroundTest, ABurstTakesAllRowsInOneWait) {
  Gaps gaps;
  for (int i = 0; i < 20; ++i) gaps.Add(4, 100, kBackgroundPriority);
  for (int i = 0; i < 10; ++i) gaps.Step();
  std::vector<RequestId> burst;
  for (int i = 0; i < 8; ++i) burst.push_back(gaps.Add(4, 50, 0));
  for (int i = 0; i < 4; ++i) gaps.Step();
  for (const RequestId id : burst) EXPECT_EQ(gaps.TokensOf(id), 1) << "each decodes";
  EXPECT_EQ(gaps.rows(), 8);
}

TEST(SchedulerBackgroundTest, ARequestTakesTheBlocks) {
  SchedulerConfig config = Config();
  config.num_blocks = 41;
  Gaps gaps(config);
  for (int i = 0; i < 4; ++i) gaps.Add(30, 60, kBackgroundPriority);
  for (int i = 0; i < 20; ++i) gaps.Step();
  const RequestId id = gaps.Add(60, 20, 0);
  EXPECT_LE(gaps.StepsToFirstToken(id, 60), 5);  // its prompt takes two steps of 32 tokens
}

TEST(SchedulerBackgroundTest, PromptsOfTheBackgroundComeBehindAndTakeAThird) {
  SchedulerConfig config = Config();
  config.max_partial_prefills = 8;
  Gaps gaps(config);
  for (int i = 0; i < 6; ++i) gaps.Add(120, 1, kBackgroundPriority);
  gaps.Step();
  EXPECT_EQ(gaps.rows() > 0, true);
  const RequestId id = gaps.Add(24, 30, 0);
  EXPECT_EQ(gaps.StepsToFirstToken(id, 24), 1) << "before the prompts that run";
  for (int i = 0; i < 5; ++i) {
    gaps.Step();
    int32_t background = 0;
    for (const Share& share : gaps.sim.last_plan()) {
      if (share.id != id) background += share.count;
    }
    EXPECT_LE(background, config.max_num_batched_tokens / 3);
    EXPECT_GT(background, 0) << "the gap is used";
  }
}

TEST(SchedulerBackgroundTest, NothingOfTheBackgroundBeginsWhileRequestsWait) {
  Gaps gaps;
  for (int i = 0; i < 8; ++i) gaps.Add(4, 60, 0);
  for (int i = 0; i < 3; ++i) gaps.Step();
  const RequestId line = gaps.Add(4, 10, kBackgroundPriority, 5);
  const RequestId request = gaps.Add(4, 10, -kMaxPriority);
  bool request_came = false;
  for (int i = 0; i < 200; ++i) {
    gaps.Step();
    request_came = request_came || gaps.TokensOf(request) > 0;
    ASSERT_TRUE(request_came || gaps.TokensOf(line) == 0) << "step " << i;
  }
  EXPECT_TRUE(request_came);
}

// Requests come at random into a background that fills every gap: none waits for a row or a block
// longer than the steps in flight, as long as requests alone leave one.
TEST(SchedulerBackgroundTest, RequestsAtRandomMomentsWaitForTheStepsInFlightOnly) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto between = [&](int32_t low, int32_t high) {
      return low + static_cast<int32_t>(random() % (high - low + 1));
    };
    Gaps gaps;
    for (int i = 0; i < 300; ++i) {
      gaps.Add(between(1, 60), between(1, 60), kBackgroundPriority, between(0, 2));
    }
    for (int i = 0; i < 60; ++i) {
      const int32_t idle = between(0, 25);
      for (int32_t step = 0; step < idle; ++step) gaps.Step();
      const int32_t prompt = between(1, 20);
      const RequestId id = gaps.Add(prompt, between(1, 8), 0, between(0, 2));
      EXPECT_LE(gaps.StepsToFirstToken(id, prompt), 3);
    }
  }
}

}  // namespace
}  // namespace quire
