// Scheduler and prefix cache: requests find the KV that requests of their tenant computed before,
// and a block that they find counts once.
// Covers engine/schedule/sequence_kv.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

using testing::ElementsAre;

// Blocks of 4 tokens.
SchedulerConfig Config(int32_t usable_blocks = 100) {
  SchedulerConfig config;
  config.num_blocks = usable_blocks + 1;
  config.block_size = 4;
  config.max_model_len = 400;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 256;
  config.max_num_queued_reqs = 64;
  config.growth_horizon = 0;
  return config;
}

// The first tokens of a text, and a last one of its own.
std::vector<int32_t> Prompt(int32_t text, int32_t size, int32_t last) {
  std::vector<int32_t> prompt = PromptOf(1000 + text, {.prompt_tokens = size}, 1000);
  prompt.back() = last;
  return prompt;
}

int32_t CachedTokens(const SimulatedEngine& sim, RequestId id) {
  return sim.outcome(id).finish.usage.cached_tokens;
}

TEST(SchedulerCacheTest, ComputesOnlyTheTailOfARepeatedSystemPrompt) {
  SchedulerConfig config = Config(1000);
  config.block_size = 16;
  config.max_model_len = 4096;
  config.max_num_batched_tokens = 4096;
  SimulatedEngine sim(config);
  const RequestId first = sim.Add({.max_tokens = 5, .prompt = Prompt(1, 2060, 1)});
  sim.RunToEnd(2);
  const RequestId second = sim.Add({.max_tokens = 5, .prompt = Prompt(1, 2060, 2)});
  sim.Schedule();
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{second, 2048, 12, true}));
  // The row learns the tokens all the same.
  EXPECT_EQ(sim.last_step_plan().tokens.size(), 2060u);
  EXPECT_EQ(sim.last_step_plan().num_found, 2048);
  sim.RunToEnd(2);
  EXPECT_EQ(CachedTokens(sim, first), 0);
  EXPECT_EQ(CachedTokens(sim, second), 2048);
  sim.ExpectUndisturbed(first);
  sim.ExpectUndisturbed(second);
}

TEST(SchedulerCacheTest, FindsOutputTokens) {
  SimulatedEngine sim(Config());
  const RequestId first = sim.Add({.prompt_tokens = 6, .max_tokens = 7, .stops_at_eos = false});
  sim.RunToEnd(2);
  std::vector<int32_t> conversation = PromptOf(first, sim.spec(first), 1000);
  const std::vector<int32_t>& output = sim.outcome(first).tokens;
  conversation.insert(conversation.end(), output.begin(), output.end());
  ASSERT_EQ(conversation.size(), 13u);  // 12 of them were computed
  const RequestId second = sim.Add({.prompt = conversation});
  sim.RunToEnd(2);
  EXPECT_EQ(CachedTokens(sim, second), 12);
  sim.ExpectUndisturbed(second);
}

TEST(SchedulerCacheTest, LeavesATokenToCompute) {
  SimulatedEngine sim(Config());
  const std::vector<int32_t> prompt = Prompt(1, 8, 3);
  sim.Add({.prompt = prompt});
  sim.RunToEnd(1);
  const RequestId again = sim.Add({.prompt = prompt});
  sim.Schedule();
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{again, 4, 4, true}));
  sim.RunToEnd(1);
  sim.ExpectUndisturbed(again);
}

TEST(SchedulerCacheTest, SharesNothingBetweenTenants) {
  SimulatedEngine sim(Config());
  const std::vector<int32_t> prompt = Prompt(1, 30, 3);
  for (const TenantId tenant : {0, 1, 2}) {
    const RequestId id = sim.Add({.prompt = prompt, .tenant = tenant});
    sim.RunToEnd(2);
    EXPECT_EQ(CachedTokens(sim, id), 0);
  }
  for (const TenantId tenant : {0, 1, 2}) {
    const RequestId id = sim.Add({.prompt = prompt, .tenant = tenant});
    sim.RunToEnd(2);
    EXPECT_EQ(CachedTokens(sim, id), 28);
  }
}

TEST(SchedulerCacheTest, ABypassingRequestNeitherReadsNorWritesTheCache) {
  SimulatedEngine sim(Config());
  const std::vector<int32_t> prompt = Prompt(1, 30, 3);
  sim.Add({.prompt = prompt, .bypass_cache = true});
  sim.RunToEnd(2);
  EXPECT_EQ(sim.load().cached_blocks, 0);
  sim.Add({.prompt = prompt});
  sim.RunToEnd(2);
  EXPECT_EQ(sim.load().cached_blocks, 8);
  const RequestId bypassing = sim.Add({.prompt = prompt, .bypass_cache = true});
  sim.RunToEnd(2);
  EXPECT_EQ(CachedTokens(sim, bypassing), 0);
}

TEST(SchedulerCacheTest, NothingIsCachedWhenTheCacheIsOff) {
  SchedulerConfig config = Config();
  config.prefix_cache = false;
  SimulatedEngine sim(config);
  for (int i = 0; i < 2; ++i) {
    const RequestId id = sim.Add({.prompt = Prompt(1, 30, 3)});
    sim.RunToEnd(2);
    EXPECT_EQ(CachedTokens(sim, id), 0);
    EXPECT_EQ(sim.load().cached_blocks, 0);
  }
}

// Two requests with equal prompts run at once. Each computes its own KV; one copy stays cached.
TEST(SchedulerCacheTest, CachesOneOfTwoEqualPrefixes) {
  SimulatedEngine sim(Config());
  const RequestId first = sim.Add({.max_tokens = 2, .prompt = Prompt(1, 21, 3)});
  const RequestId second = sim.Add({.max_tokens = 9, .prompt = Prompt(1, 21, 4)});
  sim.RunToEnd(2);
  EXPECT_EQ(CachedTokens(sim, second), 0);
  const int32_t shared = 5;
  const int32_t behind = 1 + 2;  // of 22 and of 29 computed tokens: 21 / 4 - 5, (21 + 8) / 4 - 5
  EXPECT_EQ(sim.load().cached_blocks, shared + behind - 1);
  sim.ExpectUndisturbed(first);
  sim.ExpectUndisturbed(second);
}

TEST(SchedulerCacheTest, CachesNoBlockWithoutAFiniteSample) {
  ShadowModel model;
  model.nan_probability = 1.0;
  SimulatedEngine sim(Config(), model);
  sim.Add({.prompt = Prompt(1, 30, 3)});
  sim.RunToEnd(2);
  EXPECT_EQ(sim.outcome(1).finish.reason, FinishReason::kNumeric);
  EXPECT_EQ(sim.load().cached_blocks, 0);
}

TEST(SchedulerCacheTest, CachesNothingOfACancelledPrefill) {
  SchedulerConfig config = Config();
  config.max_num_batched_tokens = 8;
  SimulatedEngine sim(config);
  const RequestId id = sim.Add({.prompt = Prompt(1, 30, 3)});
  sim.Schedule();
  sim.Retire();
  sim.Cancel(id);
  EXPECT_EQ(sim.load().cached_blocks, 0);
  sim.ExpectIdle();
}

TEST(SchedulerCacheTest, APausedRequestFindsItsOwnBlocksAgain) {
  SimulatedEngine sim(Config());
  const RequestId id = sim.Add({.prompt_tokens = 20, .max_tokens = 20, .stops_at_eos = false});
  for (int i = 0; i < 6; ++i) {
    sim.Schedule();
    sim.Retire();
  }
  sim.scheduler().SetPaused(id, true);
  EXPECT_EQ(sim.load().cached_blocks, 6);
  sim.scheduler().SetPaused(id, false);
  sim.Schedule();
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{id, 24, 2, true}));
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(id);
  EXPECT_EQ(CachedTokens(sim, id), 0);  // of the prompt, when it was first admitted
}

// Cached blocks that no sequence holds count as available until the request that found them does.
TEST(SchedulerCacheTest, CountsFoundBlocksOnce) {
  for (const int32_t usable : {11, 12}) {
    SimulatedEngine sim(Config(usable));
    sim.Add({.max_tokens = 1, .prompt = Prompt(1, 17, 3)});  // leaves 4 blocks
    sim.RunToEnd(1);
    sim.Add({.prompt_tokens = 8, .max_tokens = 5, .stops_at_eos = false});  // 2 blocks
    sim.Schedule();
    // 4 blocks found and 4 more to reserve, 3 the other's, and one for it to grow: 8 + 3 + 1.
    const RequestId id = sim.Add({.max_tokens = 2, .prompt = Prompt(1, 31, 3)});
    sim.Schedule();
    EXPECT_EQ(sim.ShareOf(id).count, usable == 12 ? 15 : 0);
    EXPECT_EQ(sim.load().cached_blocks, usable == 12 ? 0 : 4);
    sim.RunToEnd(1);
    sim.ExpectUndisturbed(id);
  }
}

TEST(SchedulerCacheTest, EvictsLeastRecentlyUsedBlocks) {
  SimulatedEngine sim(Config(10));
  for (const int32_t text : {1, 2}) {
    sim.Add({.max_tokens = 1, .prompt = Prompt(text, 17, 3)});
    sim.RunToEnd(1);
  }
  EXPECT_EQ(sim.load().cached_blocks, 8);
  const RequestId again = sim.Add({.max_tokens = 1, .prompt = Prompt(1, 17, 4)});
  sim.RunToEnd(1);
  EXPECT_EQ(CachedTokens(sim, again), 16);
  sim.Add({.max_tokens = 1, .prompt = Prompt(3, 17, 3)});  // 5 blocks: 2 free ones, 3 of text 2
  sim.RunToEnd(1);
  const RequestId second = sim.Add({.max_tokens = 1, .prompt = Prompt(2, 17, 4)});
  sim.RunToEnd(1);
  EXPECT_EQ(CachedTokens(sim, second), 4);  // the deepest went first
}

TEST(SchedulerCacheTest, AWorkersDeathEmptiesTheCache) {
  SimulatedEngine sim(Config());
  sim.Add({.prompt = Prompt(1, 30, 3)});
  sim.RunToEnd(2);
  const RequestId running = sim.Add({.max_tokens = 10, .prompt = Prompt(1, 30, 4)});
  sim.Schedule();
  sim.KillWorker();
  EXPECT_EQ(sim.load().cached_blocks, 0);
  sim.Schedule();
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{running, 0, 30, true}));
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(running);
}

// Rows learn the tokens that were found, so a plan has room for only so many of them.
TEST(SchedulerCacheTest, SpreadsFoundTokensOverPlans) {
  SchedulerConfig config = Config(3000);
  config.block_size = 64;
  config.max_model_len = 70000;
  config.max_num_batched_tokens = 70000;
  SimulatedEngine sim(config);
  for (const int32_t text : {1, 2}) {
    sim.Add({.max_tokens = 1, .prompt = Prompt(text, 40001, 3)});
    sim.RunToEnd(1);
  }
  const RequestId first = sim.Add({.max_tokens = 2, .prompt = Prompt(1, 40001, 4)});
  const RequestId second = sim.Add({.max_tokens = 2, .prompt = Prompt(2, 40001, 4)});
  sim.Schedule();
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{first, 40000, 1, true}));
  EXPECT_LE(sim.last_step_plan().tokens.size(), size_t(MaxPlanTokens(70000, 70000)));
  sim.Schedule();
  EXPECT_EQ(sim.ShareOf(second).count, 1);
  sim.RunToEnd(2);
}

}  // namespace
}  // namespace quire
