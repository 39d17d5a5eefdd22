// PromptCap and PromptBudget: the bounds and the order of the policy, its optimum against a search,
// and a scheduler that caps or paces prompts and computes the same tokens.
#include "engine/schedule/pace/prompt_pace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

constexpr StepCost kCost = {.step = 3e-3,
                            .row = 20e-6,
                            .context = 32e-9,
                            .prompt_token = 21e-6,
                            .prompt_read = 1e-9,
                            .known = true};
constexpr int32_t kMost = 2048;

PromptDemand Demand(int32_t rows, int32_t prompts, int64_t tokens) {
  return {.rows = rows, .contexts = int64_t{1000} * rows, .prompts = prompts, .tokens = tokens};
}

TEST(PromptPaceTest, TakesTheLimitWhereNothingDecodesOrNothingIsKnown) {
  EXPECT_EQ(PromptBudget(kCost, Demand(0, 1, 100), kMost), kMost);
  EXPECT_EQ(PromptBudget({}, Demand(100, 1, 100), kMost), kMost);
  StepCost free = kCost;
  free.prompt_token = free.prompt_read = 0;
  EXPECT_EQ(PromptBudget(free, Demand(100, 1, 100), kMost), kMost);
}

TEST(PromptPaceTest, NeverGrowsWithRowsNorShrinksWithTheQueue) {
  for (int32_t prompts : {1, 2, 5, 20, 200}) {
    int32_t last = kMost;
    for (int32_t rows = 0; rows <= 512; ++rows) {
      const int32_t budget = PromptBudget(kCost, Demand(rows, prompts, 1000 * prompts), kMost);
      EXPECT_LE(budget, last);
      EXPECT_LE(budget, PromptBudget(kCost, Demand(rows, prompts + 1, 1000 * prompts), kMost));
      EXPECT_LE(budget, PromptBudget(kCost, Demand(rows, prompts, 1000 * prompts + 500), kMost));
      last = budget;
    }
  }
}

TEST(PromptPaceTest, StaysWithinItsBounds) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 10'000; ++i) {
    StepCost cost = kCost;
    for (double* part : {&cost.step, &cost.row, &cost.context, &cost.prompt_token}) {
      *part = random() % 4 == 0 ? 0 : std::pow(10, -static_cast<double>(random() % 12));
    }
    const auto most = static_cast<int32_t>(1 + random() % 8192);
    const PromptDemand demand =
        Demand(static_cast<int32_t>(random() % 512), static_cast<int32_t>(random() % 512),
               static_cast<int64_t>(random() % 10'000'000));
    const int32_t budget = PromptBudget(cost, demand, most);
    EXPECT_LE(budget, most);
    EXPECT_GE(budget, std::min(most, kLeastPromptTokens));
  }
}

// A queue that outgrows what rows can bear gets whole steps.
TEST(PromptPaceTest, ALongQueueTakesTheLimit) {
  EXPECT_EQ(PromptBudget(kCost, Demand(256, 200, 200'000), kMost), kMost);
}

// Attention over a long context makes a token dearer, and the chunk shorter.
TEST(PromptPaceTest, TokensBehindALongContextCostMore) {
  PromptDemand demand = Demand(64, 1, 16'000);
  const int32_t early = PromptBudget(kCost, demand, kMost);
  demand.mean_before = 64'000;
  EXPECT_LT(PromptBudget(kCost, demand, kMost), early);
}

// The delays that the header sums, at the chosen budget and around it.
TEST(PromptPaceTest, IsWhereTheSumOfDelaysIsLeast) {
  for (const PromptDemand& demand : {Demand(20, 3, 3000), Demand(100, 8, 8000)}) {
    const double waiting = kCost.prompt_token * static_cast<double>(demand.tokens);
    const double decode = kCost.Seconds(
        {.rows = double(demand.rows), .contexts = static_cast<double>(demand.contexts)});
    const auto delays = [&](double tokens) {
      const double y = kCost.prompt_token * tokens;
      return demand.rows * y * waiting / 2 + 2 * demand.prompts * decode * waiting * waiting / y;
    };
    int32_t best = 1;
    for (int32_t tokens = 1; tokens <= kMost; ++tokens) {
      if (delays(tokens) < delays(best)) best = tokens;
    }
    EXPECT_NEAR(PromptBudget(kCost, demand, kMost), best, 1);
  }
}

TEST(PromptCapTest, BringsAStepBesideRowsToItsSize) {
  EXPECT_EQ(PromptCap(1024, Demand(200, 3, 5000), kMost), 824);
  EXPECT_EQ(PromptCap(1024, Demand(1, 1, 100), kMost), 1023);
  EXPECT_EQ(PromptCap(1024, Demand(200, 3, 5000), 300), 300) << "what is left of the step";
}

TEST(PromptCapTest, IsAbsentWhereNothingDecodesOrNoneIsWanted) {
  EXPECT_EQ(PromptCap(1024, Demand(0, 3, 5000), kMost), kMost);
  EXPECT_EQ(PromptCap(0, Demand(200, 3, 5000), kMost), kMost);
}

// 16 steps of 1,024 tokens.
TEST(PromptCapTest, GrowsBehindALongQueue) {
  EXPECT_EQ(PromptCap(1024, Demand(1, 16, 16 * 1023), kMost), 1023);
  EXPECT_EQ(PromptCap(1024, Demand(1, 24, 24 * 1024), kMost), 24 * 1024 / 16);
  EXPECT_EQ(PromptCap(1024, Demand(200, 100, 100'000), kMost), kMost);
}

TEST(PromptCapTest, LetsPromptsProgressBesideMoreRowsThanTheStepHasTokens) {
  EXPECT_EQ(PromptCap(1024, Demand(2000, 3, 500), kMost), kLeastPromptTokens);
  EXPECT_EQ(PromptCap(1024, Demand(2000, 3, 500), 5), 5);
}

TEST(PromptPaceTest, ASettingHasTheCapAndOnRequestTheBalanceBelowIt) {
  for (const PromptDemand& demand :
       {Demand(0, 3, 5000), Demand(2, 50, 9000), Demand(200, 3, 5000), Demand(200, 100, 100'000)}) {
    const int32_t cap = PromptCap(1024, demand, kMost);
    EXPECT_EQ((PromptPace{}.Tokens(kCost, demand, kMost)), kMost);
    EXPECT_EQ((PromptPace{.mixed_step = 1024}.Tokens(kCost, demand, kMost)), cap);
    EXPECT_EQ((PromptPace{.balances = true}.Tokens(kCost, demand, kMost)),
              PromptBudget(kCost, demand, kMost));
    EXPECT_EQ((PromptPace{.mixed_step = 1024, .balances = true}.Tokens(kCost, demand, kMost)),
              PromptBudget(kCost, demand, cap));
  }
  // Each may be the smaller one.
  EXPECT_GT(PromptBudget(kCost, Demand(2, 50, 9000), kMost),
            PromptCap(1024, Demand(2, 50, 9000), kMost));
  EXPECT_LT(
      (PromptPace{.mixed_step = 1024, .balances = true}.Tokens(kCost, Demand(200, 1, 1000), kMost)),
      PromptCap(1024, Demand(200, 1, 1000), kMost));
}

TEST(PromptCapTest, NeverGrowsWithRowsNorShrinksWithTheQueue) {
  for (int64_t tokens = 0; tokens < 64'000; tokens += 500) {
    int32_t last = kMost;
    for (int32_t rows = 0; rows <= 1500; rows += 50) {
      const int32_t cap = PromptCap(1024, Demand(rows, 4, tokens), kMost);
      EXPECT_LE(cap, last);
      EXPECT_LE(cap, PromptCap(1024, Demand(rows, 4, tokens + 500), kMost));
      last = cap;
    }
  }
}

SchedulerConfig Config(bool paces, int32_t mixed_step = 0) {
  SchedulerConfig config;
  config.num_blocks = 2001;
  config.block_size = 4;
  config.max_model_len = 1000;
  config.max_num_seqs = 16;
  config.max_num_batched_tokens = 512;
  config.max_num_queued_reqs = 64;
  config.mixed_step_tokens = mixed_step;
  config.pace_prompts = paces;
  return config;
}

// Random requests arrive while others decode. Returns the largest number of prompt tokens of a
// step in which some row decoded, once costs are known.
int32_t RunRandom(const SchedulerConfig& config) {
  SimulatedEngine engine(config, {});
  engine.ns_per_token = 100'000;
  std::mt19937_64 random(9);
  std::vector<RequestId> ids;
  int32_t largest = 0;
  for (int step = 0; step < 600; ++step) {
    if (random() % 8 == 0 && ids.size() < 60) {
      ids.push_back(engine.Add({.prompt_tokens = static_cast<int32_t>(1 + random() % 400),
                                .max_tokens = static_cast<int32_t>(1 + random() % 100)}));
    }
    if (engine.HasWork() && engine.steps_in_flight() < 2 && engine.Schedule()) {
      int32_t rows = 0, tokens = 0;
      for (const Share& share : engine.last_plan()) {
        (share.count == 1 ? rows : tokens) += share.count;
      }
      if (rows > 0 && engine.load().step_cost.known) largest = std::max(largest, tokens);
    }
    if (engine.steps_in_flight() == 2) engine.Retire();
  }
  engine.RunToEnd(2, 10'000);
  for (const RequestId id : ids) engine.ExpectUndisturbed(id);
  return largest;
}

TEST(PromptPaceTest, PacedRequestsGetTheSameTokensInSmallerSteps) {
  const int32_t paced = RunRandom(Config(true));
  EXPECT_GT(paced, 0);
  EXPECT_GT(RunRandom(Config(false)), 2 * paced);
}

TEST(PromptPaceTest, CappedRequestsGetTheSameTokensInSmallerSteps) {
  const int32_t capped = RunRandom(Config(false, 128));
  EXPECT_GT(capped, 0);
  EXPECT_LT(capped, 128);
}

}  // namespace
}  // namespace quire
