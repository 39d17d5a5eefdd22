// Several answers to one prompt: one computes it, the others find its full blocks; whatever happens
// to the first, none waits for ever, and each has exactly the tokens that it has alone.
// Covers engine/schedule/waiting_line.cc
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

SchedulerConfig Config() {
  SchedulerConfig config;
  config.num_blocks = 65;
  config.block_size = 4;
  config.max_model_len = 64;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 16;
  config.max_num_queued_reqs = 64;
  config.growth_horizon = 8;
  return config;
}

// Answers of 3, 5, 7, ... tokens to a prompt of 22 tokens: five full blocks, and two tokens more.
std::vector<RequestSpec> Answers(size_t count, int32_t prompt_tokens = 22, uint64_t text = 1000) {
  RequestSpec spec;
  spec.prompt = PromptOf(text, {.prompt_tokens = prompt_tokens}, ShadowModel().vocab_size);
  std::vector<RequestSpec> specs(count, spec);
  for (size_t i = 0; i < count; ++i) specs[i].max_tokens = 3 + 2 * static_cast<int32_t>(i);
  return specs;
}

// Tokens that plans compute of each request, with `depth` steps in flight, until all have ended.
std::map<RequestId, int32_t> Computed(SimulatedEngine& sim, int32_t depth) {
  std::map<RequestId, int32_t> computed;
  while (sim.HasWork() || sim.steps_in_flight() > 0) {
    if (sim.HasWork() && sim.steps_in_flight() < depth && sim.Schedule()) {
      for (const Share& share : sim.last_plan()) computed[share.id] += share.count;
    } else {
      sim.Retire();
    }
  }
  sim.ExpectIdle();
  return computed;
}

void ExpectAllUndisturbed(const SimulatedEngine& sim, const std::vector<RequestId>& ids) {
  for (const RequestId id : ids) sim.ExpectUndisturbed(id);
}

void SetPaused(SimulatedEngine& sim, RequestId id, bool paused) {
  sim.scheduler().SetPaused(id, paused);
  sim.scheduler().CheckInvariants();
}

TEST(SchedulerAnswersTest, TheOthersComputeTheLastBlockAlone) {
  for (int32_t depth = 1; depth <= 3; ++depth) {
    SimulatedEngine sim(Config());
    const std::vector<RequestId> ids = sim.AddAnswers(Answers(4));
    EXPECT_EQ(sim.load().waiting, 4);
    const std::map<RequestId, int32_t> computed = Computed(sim, depth);
    ExpectAllUndisturbed(sim, ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto outputs = static_cast<int32_t>(sim.outcome(ids[i]).tokens.size());
      // The last token is never computed, unless a step in flight overshoots the end.
      EXPECT_GE(computed.at(ids[i]), (i == 0 ? 22 : 2) + outputs - 1);
      EXPECT_LE(computed.at(ids[i]), (i == 0 ? 22 : 2) + outputs - 1 + depth);
      EXPECT_EQ(sim.outcome(ids[i]).finish.usage.cached_tokens, i == 0 ? 0 : 20);
    }
  }
}

TEST(SchedulerAnswersTest, APromptOfWholeBlocksLeavesItsLastBlockToEach) {
  SimulatedEngine sim(Config());
  const std::vector<RequestId> ids = sim.AddAnswers(Answers(3, 24));
  Computed(sim, 2);
  ExpectAllUndisturbed(sim, ids);
  EXPECT_EQ(sim.outcome(ids[2]).finish.usage.cached_tokens, 20);
}

// In both nothing is gained by waiting.
TEST(SchedulerAnswersTest, StartTogetherWhereThePromptIsShortOrFound) {
  SimulatedEngine sim(Config());
  sim.AddAnswers(Answers(3, 4));
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.last_plan().size(), 3u);
  sim.RunToEnd(2);
  sim.AddAnswers(Answers(1));
  sim.RunToEnd(2);
  const std::vector<RequestId> ids = sim.AddAnswers(Answers(3));
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.last_plan().size(), 3u);
  for (const RequestId id : ids) EXPECT_EQ(sim.ShareOf(id).start, 20);
  sim.RunToEnd(2);
  ExpectAllUndisturbed(sim, ids);
}

TEST(SchedulerAnswersTest, EachComputesThePromptWithoutThePrefixCache) {
  for (const bool bypass : {false, true}) {
    SchedulerConfig config = Config();
    config.prefix_cache = bypass;
    SimulatedEngine sim(config);
    std::vector<RequestSpec> specs = Answers(4);
    for (RequestSpec& spec : specs) spec.bypass_cache = bypass;
    const std::vector<RequestId> ids = sim.AddAnswers(specs);
    const std::map<RequestId, int32_t> computed = Computed(sim, 2);
    ExpectAllUndisturbed(sim, ids);
    for (const RequestId id : ids) EXPECT_GE(computed.at(id), 22);
  }
}

// Something happens to the first answer, or to another, before any step of the group's life.
using Event = std::function<void(SimulatedEngine& sim, RequestId id)>;
void TryAtEveryPoint(size_t victim, bool ends, const Event& event) {
  for (int32_t depth = 0; depth <= 2; ++depth) {
    for (int32_t stop = 0; stop < 25; ++stop) {
      SCOPED_TRACE("depth " + std::to_string(depth) + ", stop " + std::to_string(stop));
      SimulatedEngine sim(Config());
      const std::vector<RequestId> ids = sim.AddAnswers(Answers(4));
      const RequestId other = sim.Add({.prompt_tokens = 9, .max_tokens = 6});
      for (int32_t call = 0; call < stop && sim.HasWork(); ++call) {
        if (!sim.Schedule() || sim.steps_in_flight() > depth) sim.Retire();
      }
      const bool was_over = sim.outcome(ids[victim]).finished;
      event(sim, ids[victim]);
      sim.RunToEnd(depth + 1);
      sim.ExpectUndisturbed(other);
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i != victim || !ends || was_over) sim.ExpectUndisturbed(ids[i]);
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(SchedulerAnswersTest, TheOthersEndWhenAnAnswerIsCancelled) {
  const Event cancel = [](SimulatedEngine& sim, RequestId id) { sim.Cancel(id); };
  TryAtEveryPoint(0, /*ends=*/true, cancel);
  TryAtEveryPoint(2, /*ends=*/true, cancel);
}

TEST(SchedulerAnswersTest, APausedAnswerHoldsNoOtherUp) {
  const Event pause = [](SimulatedEngine& sim, RequestId id) {
    SetPaused(sim, id, true);
    while (sim.HasWork()) {
      if (!sim.Schedule() || sim.steps_in_flight() > 1) sim.Retire();
    }
    SetPaused(sim, id, false);
  };
  TryAtEveryPoint(0, /*ends=*/false, pause);
  TryAtEveryPoint(3, /*ends=*/false, pause);
}

TEST(SchedulerAnswersTest, GoOnAfterAWorkerDeath) {
  const Event kill = [](SimulatedEngine& sim, RequestId) { sim.KillWorker(); };
  TryAtEveryPoint(0, /*ends=*/false, kill);
}

TEST(SchedulerAnswersTest, TheSecondComputesThePromptThatTheFirstLeftUndone) {
  SimulatedEngine sim(Config());
  const std::vector<RequestId> ids = sim.AddAnswers(Answers(4));
  ASSERT_TRUE(sim.Schedule());  // 16 of the 22 tokens
  EXPECT_EQ(sim.last_plan().size(), 1u);
  sim.Cancel(ids[0]);
  sim.Retire();
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.last_plan().size(), 1u);
  EXPECT_EQ(sim.ShareOf(ids[1]).count, 16);
  EXPECT_EQ(sim.load().waiting, 2);
  sim.RunToEnd(2);
  EXPECT_EQ(sim.outcome(ids[3]).finish.usage.cached_tokens, 20);
}

TEST(SchedulerAnswersTest, TheWaitingOnesDelayNoOtherRequest) {
  SchedulerConfig config = Config();
  config.max_num_batched_tokens = 64;
  SimulatedEngine sim(config);
  sim.AddAnswers(Answers(50));  // more than a step looks at
  const RequestId other = sim.Add({.prompt_tokens = 5, .max_tokens = 2});
  ASSERT_TRUE(sim.Schedule());
  EXPECT_EQ(sim.ShareOf(other).count, 5);
  sim.RunToEnd(2);
}

TEST(SchedulerAnswersTest, AllCountAsWaitingForTheirTenant) {
  SimulatedEngine sim(Config());
  std::vector<RequestSpec> specs = Answers(5);
  for (RequestSpec& spec : specs) spec.tenant = 7;
  sim.AddAnswers(specs);
  std::vector<TenantStats> figures;
  sim.scheduler().TakeTenantChanges(figures);
  ASSERT_EQ(figures.back().tenant, 7u);
  EXPECT_EQ(figures.back().queued, 5);
  sim.RunToEnd(2);
  figures.clear();
  sim.scheduler().TakeTenantChanges(figures);
  EXPECT_EQ(figures.back().queued, 0);
  EXPECT_EQ(figures.back().prompt_tokens, 22u + 4 * 2) << "the prompt is served once";
}

TEST(SchedulerAnswersTest, DeadlinesEndAllOfThem) {
  SimulatedEngine sim(Config());
  std::vector<RequestSpec> specs = Answers(5);
  for (RequestSpec& spec : specs) spec.deadline_ns = 100;
  const std::vector<RequestId> ids = sim.AddAnswers(specs);
  sim.Schedule();
  sim.now_ns = 100;
  sim.ExpireDeadlines();
  sim.Retire();
  sim.ExpectIdle();
  for (const RequestId id : ids) {
    EXPECT_EQ(sim.outcome(id).finish.reason, FinishReason::kDeadline);
  }
}

// Pools that hold a few answers at most, so that they are preempted, with everything that can
// happen to a request.
class RandomGroups {
 public:
  explicit RandomGroups(uint32_t seed) : random_(seed), sim_(SmallConfig(), ShadowModel()) {}

  void Run() {
    for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) Operate();
    for (const RequestId id : ids_) SetPaused(sim_, id, false);
    sim_.RunToEnd(2);
    for (const RequestId id : ids_) {
      if (!ended_.contains(id)) sim_.ExpectUndisturbed(id);
    }
  }

 private:
  uint32_t Below(uint32_t end) { return random_() % end; }

  SchedulerConfig SmallConfig() {
    SchedulerConfig config = Config();
    config.num_blocks = 18 + static_cast<int32_t>(Below(20));
    config.max_num_seqs = 1 + static_cast<int32_t>(Below(8));
    config.growth_horizon = static_cast<int32_t>(Below(12));
    config.prefix_cache = Below(8) != 0;
    return config;
  }

  void Operate() {
    const uint32_t dice = Below(100);
    if (dice < 8) {
      Add();
    } else if (dice < 14 && !ids_.empty()) {
      SetPaused(sim_, ids_[Below(static_cast<uint32_t>(ids_.size()))], Below(2) == 0);
    } else if (dice < 17 && !ids_.empty()) {
      const RequestId id = ids_[Below(static_cast<uint32_t>(ids_.size()))];
      if (!sim_.outcome(id).finished) ended_.insert(id);
      sim_.Cancel(id);
    } else if (dice == 17 && deaths_ < 1) {
      ++deaths_;
      sim_.KillWorker();
    } else if (dice < 60 && sim_.steps_in_flight() < 2) {
      if (sim_.HasWork()) sim_.Schedule();
    } else if (sim_.steps_in_flight() > 0) {
      sim_.Retire();
    }
  }

  void Add() {
    if (sim_.load().waiting > 40) return;
    const int32_t prompt = 1 + static_cast<int32_t>(Below(40));
    std::vector<RequestSpec> specs = Answers(1 + Below(7), prompt, 1000 + Below(3));
    const bool bypass = Below(10) == 0;
    for (RequestSpec& spec : specs) {
      spec.max_tokens = 1 + static_cast<int32_t>(Below(24));
      spec.bypass_cache = bypass;
    }
    const std::vector<RequestId> ids = sim_.AddAnswers(specs);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }

  std::mt19937 random_;
  SimulatedEngine sim_;
  std::vector<RequestId> ids_;
  std::set<RequestId> ended_;
  int deaths_ = 0;
};

TEST(SchedulerAnswersTest, RandomGroupsInSmallPoolsChangeNoTokens) {
  for (uint32_t seed = 1; seed <= 200 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomGroups(seed).Run();
  }
}

}  // namespace
}  // namespace quire
