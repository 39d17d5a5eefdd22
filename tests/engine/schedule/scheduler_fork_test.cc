// Forks and cuts continue in the KV of their origin. Their turn takes their last block over or
// copies it on the device, and computes it again only if its KV is lost. The worker knows every
// slot by the hash of its prefix; the simulated engine knows every block a step reads or writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int32_t kBlock = 4;
// A turn: 10 tokens in, 9 out. Of a session's first 19 tokens 18 have KV: four blocks and a tail.
constexpr int32_t kIn = 10;
constexpr int32_t kOut = 9;
constexpr int32_t kKv = kIn + kOut - 1;

SchedulerConfig Config(int32_t usable_blocks = 60, int32_t num_pages = 60) {
  return SessionConfig(usable_blocks, num_pages, /*max_model_len=*/300);
}

class Forks : public SimulatedEngine {
 public:
  explicit Forks(const SchedulerConfig& config = Config()) : SimulatedEngine(config) {
    CreateSession(0, "a");
    Say("a");
  }

  SessionStore& store() { return scheduler().sessions(); }
  SessionInfo Info(const std::string& name) { return store().Get(0, name).value(); }

  void Fork(const std::string& from, const std::string& to,
            std::optional<int32_t> position = std::nullopt) {
    ASSERT_TRUE(store().Fork(0, from, to, position, now_ns).ok());
    std::vector<int32_t> tokens = SessionTokens(0, from);
    tokens.resize(position.value_or(tokens.size()));
    SetSessionTokens(0, to, tokens);
  }
  void Truncate(const std::string& name, int32_t position) {
    ASSERT_TRUE(store().Truncate(0, name, position, now_ns).ok());
    std::vector<int32_t> tokens = SessionTokens(0, name);
    tokens.resize(position);
    SetSessionTokens(0, name, tokens);
  }
  RequestId Begin(const std::string& name, int32_t in = kIn, int32_t out = kOut) {
    const RequestId id =
        Add({.prompt_tokens = in, .max_tokens = out, .stops_at_eos = false, .session = name});
    EXPECT_NE(id, 0u);
    return id;
  }
  // Runs a whole turn. Returns its residency.
  Residency Say(const std::string& name, int32_t in = kIn, int32_t out = kOut) {
    const RequestId id = Begin(name, in, out);
    RunToEnd(2);
    ExpectUndisturbed(id);
    CheckSession(0, name);
    return outcome(id).finish.residency;
  }
  // Likewise, when other nodes are still held afterwards.
  Residency SayAlone(const std::string& name) {
    const RequestId id = Begin(name);
    while (!outcome(id).finished) {
      Schedule();
      Retire();
    }
    ExpectUndisturbed(id);
    return outcome(id).finish.residency;
  }
  // Stores all idle sessions on the host; then other requests take every block.
  void StoreAll() {
    now_ns += 2000 * kSecond;
    OnTimer();
    RunCopies();
  }
  void TakeAllBlocks() {
    const RequestId id = Add({.prompt_tokens = load().free_blocks * kBlock - 1,
                              .max_tokens = 1,
                              .stops_at_eos = false,
                              .bypass_cache = true});
    RunToEnd(1);
    ExpectUndisturbed(id);
  }
  // Runs until there is no work or `moments` have passed. Returns the moments left.
  int32_t Move(int32_t moments) {
    for (; moments > 0; --moments) {
      if (SendCopy()) continue;
      if (steps_in_flight() < 2 && HasWork() && Schedule()) continue;
      if (FinishCopy(CopyDirection::kLoad) || FinishCopy(CopyDirection::kStore)) continue;
      if (steps_in_flight() == 0) break;
      Retire();
    }
    return moments;
  }
};

MATCHER_P(HasFound, tokens, "") {
  *result_listener << arg.device_tokens << " from the device, " << arg.host_tokens
                   << " from the host, " << arg.recomputed_tokens << " computed again";
  return arg.device_tokens == tokens && arg.host_tokens == 0 && arg.recomputed_tokens == 0;
}

TEST(SchedulerForkTest, AForkIsOnTheDeviceAndCostsNoBlock) {
  Forks sim;
  const int32_t cached = sim.load().cached_blocks;
  sim.Fork("a", "b");
  EXPECT_EQ(sim.Info("b").state, SessionState::kResidentIdle);
  EXPECT_EQ(sim.Info("b").tiers.device_tokens, kKv);
  EXPECT_EQ(sim.Info("b").tiers.absent_tokens, 1);
  EXPECT_EQ(sim.load().cached_blocks, cached);
}

TEST(SchedulerForkTest, FirstStepClonesTheTail) {
  Forks sim;
  sim.Fork("a", "b");
  const RequestId id = sim.Begin("b");
  sim.Schedule();
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{id, kKv, kIn + 1, true}));
  const StepPlan plan = sim.last_step_plan();
  ASSERT_EQ(plan.block_clones.size(), 1u);
  EXPECT_EQ(plan.block_adds[kKv / kBlock].block, plan.block_clones[0].to);
  EXPECT_NE(plan.block_clones[0].from, plan.block_clones[0].to);
  sim.Schedule();
  sim.RunToEnd(2);
  EXPECT_EQ(sim.num_clones(), 1);
  sim.ExpectUndisturbed(id);
  EXPECT_THAT(sim.outcome(id).finish.residency, HasFound(kKv));
  EXPECT_EQ(sim.outcome(id).finish.residency.outcome, Residency::Outcome::kDevice);
}

// The session that continues last is the only keeper of the block.
TEST(SchedulerForkTest, LastSessionTakesTheTailOver) {
  for (const bool parent_first : {true, false}) {
    Forks sim;
    sim.Fork("a", "b");
    EXPECT_THAT(sim.Say(parent_first ? "a" : "b"), HasFound(kKv));
    EXPECT_EQ(sim.num_clones(), 1);
    EXPECT_THAT(sim.Say(parent_first ? "b" : "a"), HasFound(kKv));
    EXPECT_EQ(sim.num_clones(), 1);
    EXPECT_THAT(sim.Say("a"), HasFound(2 * (kIn + kOut) - 1));
    EXPECT_EQ(sim.num_clones(), 1);
  }
}

TEST(SchedulerForkTest, ManyTurnsCloneOneTail) {
  Forks sim;
  for (const char* name : {"b", "c"}) sim.Fork("a", name);
  std::vector<RequestId> ids;
  for (const char* name : {"c", "a", "b"}) ids.push_back(sim.Begin(name));
  sim.Schedule();
  EXPECT_EQ(sim.last_step_plan().block_clones.size(), 3u);
  sim.RunToEnd(2);
  for (const RequestId id : ids) {
    sim.ExpectUndisturbed(id);
    EXPECT_THAT(sim.outcome(id).finish.residency, HasFound(kKv));
  }
}

TEST(SchedulerForkTest, AForkOfAForkContinues) {
  Forks sim;
  sim.Fork("a", "b");
  sim.Fork("b", "c");
  EXPECT_THAT(sim.Say("b", 3, 3), HasFound(kKv));
  sim.Fork("b", "d");
  EXPECT_THAT(sim.Say("d"), HasFound(kKv + 6));
  EXPECT_THAT(sim.Say("c"), HasFound(kKv));
  EXPECT_THAT(sim.Say("b"), HasFound(kKv + 6));
  EXPECT_THAT(sim.Say("a"), HasFound(kKv));
}

TEST(SchedulerForkTest, ForksAtAnyPosition) {
  for (int32_t position = 0; position <= kIn + kOut; ++position) {
    SCOPED_TRACE(position);
    Forks sim;
    sim.Fork("a", "b", position);
    EXPECT_EQ(sim.Info("b").tiers.device_tokens, std::min(position, kKv));
    EXPECT_THAT(sim.Say("b"), HasFound(std::min(position, kKv)));
    EXPECT_THAT(sim.Say("a"), HasFound(kKv));
  }
}

TEST(SchedulerForkTest, CutsAtAnyPosition) {
  for (int32_t position = 0; position <= kIn + kOut; ++position) {
    for (const bool forked : {false, true}) {
      SCOPED_TRACE(position);
      Forks sim;
      if (forked) sim.Fork("a", "b");
      sim.Truncate("a", position);
      EXPECT_EQ(sim.Info("a").tiers.device_tokens, std::min(position, kKv));
      EXPECT_THAT(sim.Say("a"), HasFound(std::min(position, kKv)));
      // The child does not read the tokens that the parent now writes there.
      if (forked) {
        EXPECT_THAT(sim.Say("b"), HasFound(kKv));
      }
    }
  }
}

TEST(SchedulerForkTest, AForkOutlivesItsParent) {
  Forks sim;
  sim.Fork("a", "b");
  ASSERT_TRUE(sim.store().Close(0, "a").ok());
  EXPECT_THAT(sim.Say("b"), HasFound(kKv));
  EXPECT_EQ(sim.num_clones(), 0);
}

// The text layer finds a stop string in the middle of a block that is already full.
TEST(SchedulerForkTest, AStoppedTurnLeavesTheBlockItEndsIn) {
  for (int32_t keep = 1; keep <= 8; ++keep) {
    Forks sim;
    const RequestId id = sim.Begin("a", kIn, 20);
    while (sim.outcome(id).tokens.size() < 8) {
      sim.Schedule();
      sim.Retire();
    }
    sim.Cancel(id, FinishReason::kStopText, keep);
    EXPECT_THAT(sim.Say("a"), HasFound(kIn + kOut + kIn + std::min(keep, 7)));
  }
}

TEST(SchedulerForkTest, AFailedTurnLeavesTheBlockItContinued) {
  for (const bool forked : {false, true}) {
    for (const int32_t steps : {0, 1, 2, 3, 7}) {
      Forks sim;
      if (forked) sim.Fork("a", "b");
      const RequestId id = sim.Begin("a");
      for (int32_t i = 0; i < steps; ++i) {
        sim.Schedule();
        sim.Retire();
      }
      sim.Cancel(id);
      EXPECT_GE(sim.Info("a").tiers.device_tokens, kKv);
      EXPECT_EQ(sim.Say("a").recomputed_tokens, 0);
      if (forked) {
        EXPECT_THAT(sim.Say("b"), HasFound(kKv));
      }
    }
  }
}

// --- KV on the host, or lost.

TEST(SchedulerForkTest, AForkIsRestoredWithItsTail) {
  Forks sim;
  sim.Fork("a", "b");
  sim.StoreAll();
  sim.TakeAllBlocks();
  EXPECT_EQ(sim.Info("b").state, SessionState::kHost);
  EXPECT_EQ(sim.Info("b").tiers.host_tokens, kKv);
  const Residency child = sim.Say("b");
  EXPECT_EQ(child.host_tokens, kKv);
  EXPECT_EQ(child.outcome, Residency::Outcome::kRestored);
  EXPECT_EQ(sim.num_clones(), 1);
  EXPECT_THAT(sim.Say("a"), HasFound(kKv));  // the child's restore loaded all of it
  EXPECT_EQ(sim.scheduler().tiering_stats().loaded_blocks, 5);
}

TEST(SchedulerForkTest, ACutInsideABlockIsRestored) {
  Forks sim;
  sim.Fork("a", "b", 14);
  sim.StoreAll();
  sim.TakeAllBlocks();
  const Residency residency = sim.Say("b");
  EXPECT_EQ(residency.host_tokens, 14);
  EXPECT_EQ(residency.recomputed_tokens, 0);
}

TEST(SchedulerForkTest, ComputesLostKvAgain) {
  Forks sim(Config(60, 0));
  sim.Fork("a", "b");
  sim.TakeAllBlocks();
  EXPECT_EQ(sim.Info("b").state, SessionState::kDropped);
  EXPECT_EQ(sim.Say("b").recomputed_tokens, kKv);
}

// A store reads the block until its ack: the turn neither waits nor computes.
TEST(SchedulerForkTest, ClonesATailThatIsBeingStored) {
  Forks sim;
  sim.now_ns += 2000 * kSecond;
  sim.OnTimer();
  ASSERT_TRUE(sim.SendCopy());
  const RequestId id = sim.Begin("a");
  sim.Schedule();
  EXPECT_EQ(sim.last_step_plan().block_clones.size(), 1u);
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{id, kKv, kIn + 1, true}));
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(id);
  EXPECT_THAT(sim.Say("a"), HasFound(2 * (kIn + kOut) - 1));
}

TEST(SchedulerForkTest, ExportsTheTail) {
  Forks sim;
  sim.Fork("a", "b");
  ASSERT_TRUE(sim.store().Save(0, "b", sim.now_ns).ok());
  sim.RunCopies();
  const auto bytes = sim.store().BeginExport(0, "b", sim.now_ns);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes->kv_tokens, kKv);
  EXPECT_EQ(bytes->pages.size(), 5u);
  EXPECT_THAT(sim.SayAlone("a"), HasFound(kKv));  // the export holds the tail
  EXPECT_EQ(sim.num_clones(), 1);
  sim.store().AbortTurn(bytes->turn, sim.now_ns);
  EXPECT_THAT(sim.Say("b"), HasFound(kKv));
}

TEST(SchedulerForkTest, APinnedForkContinues) {
  Forks sim;
  sim.Fork("a", "b");
  ASSERT_TRUE(sim.store().Pin(0, "b", sim.now_ns).ok());
  EXPECT_THAT(sim.SayAlone("a"), HasFound(kKv));
  EXPECT_THAT(sim.SayAlone("b"), HasFound(kKv));
  ASSERT_TRUE(sim.store().Unpin(0, "b", sim.now_ns).ok());
  EXPECT_EQ(sim.load().free_blocks, sim.load().total_blocks);
}

// --- Few blocks.

TEST(SchedulerForkTest, HoldsAClonedTailUntilItsStepRetires) {
  Forks sim(Config(20, 0));
  sim.Fork("a", "b");
  const RequestId id = sim.Begin("b", 1, 2);
  sim.Schedule();
  ASSERT_TRUE(sim.store().Close(0, "a").ok());
  EXPECT_EQ(sim.load().free_blocks, 20 - 4 - 2);
  sim.Cancel(id);
  EXPECT_EQ(sim.load().free_blocks, 20 - 4 - 2);  // the step is on its way still
  sim.Retire();
  EXPECT_EQ(sim.load().free_blocks, 20);
  EXPECT_THAT(sim.Say("b"), HasFound(kKv));
}

// A turn that needs every block has none left for a copy. So it computes its tail again.
TEST(SchedulerForkTest, ATurnThatNeedsEveryBlockRunsWithoutAClone) {
  for (const int32_t pages : {0, 60}) {
    Forks sim(Config(8, pages));
    sim.Fork("a", "b");
    sim.StoreAll();
    const Residency residency = sim.Say("b", 12, 1);  // 31 of 32 slots
    EXPECT_EQ(residency.device_tokens, 16);
    EXPECT_EQ(residency.recomputed_tokens, 2);
    EXPECT_EQ(sim.num_clones(), 0);
    sim.StoreAll();
    sim.TakeAllBlocks();
    sim.Fork("b", "c", 18);
    sim.Say("c", 13, 1);
    sim.CheckSession(0, "a");
  }
}

TEST(SchedulerForkTest, APreemptedTurnClonesItsTailAgain) {
  Forks sim(Config(14, 60));
  sim.Fork("a", "b");
  sim.StoreAll();
  const RequestId low = sim.Begin("b", 2, 12);
  sim.Schedule();
  const RequestId high =
      sim.Add({.prompt_tokens = 20, .max_tokens = 30, .priority = 1, .stops_at_eos = false});
  sim.RunToEnd(2);
  EXPECT_GT(sim.outcome(low).finish.usage.preemptions, 0);
  sim.ExpectUndisturbed(low);
  sim.ExpectUndisturbed(high);
  EXPECT_EQ(sim.Say("a").recomputed_tokens, 0);
}

// --- Disturbances at every moment of two turns that share a tail, stored and not.

using Disturbance = std::function<void(Forks&, RequestId)>;

void ExpectHarmless(const Disturbance& disturb) {
  for (const bool away : {false, true}) {
    for (int32_t moments = 0, left = 0; left == 0; ++moments) {
      SCOPED_TRACE(std::to_string(moments) + (away ? " moments, from the host" : " moments"));
      Forks sim(Config(30));
      sim.Fork("a", "b");
      sim.Fork("a", "c", 17);
      if (away) {
        sim.StoreAll();
        sim.TakeAllBlocks();
      }
      const RequestId child = sim.Begin("b");
      const RequestId parent = sim.Begin("a");
      left = sim.Move(moments);
      disturb(sim, child);
      sim.RunToEnd(2);
      if (sim.outcome(child).finish.reason == FinishReason::kMaxTokens) {
        sim.ExpectUndisturbed(child);
      }
      sim.ExpectUndisturbed(parent);
      for (const char* name : {"a", "b"}) sim.CheckSession(0, name);
      sim.Say("b");
      if (sim.store().Get(0, "c").ok()) sim.Say("c");
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(SchedulerForkTest, SurvivesACancelAtEveryMoment) {
  ExpectHarmless([](Forks& sim, RequestId id) { sim.Cancel(id); });
}

TEST(SchedulerForkTest, SurvivesAWorkersDeathAtEveryMoment) {
  ExpectHarmless([](Forks& sim, RequestId) { sim.KillWorker(); });
}

TEST(SchedulerForkTest, SurvivesAPauseAtEveryMoment) {
  ExpectHarmless([](Forks& sim, RequestId id) {
    sim.scheduler().SetPaused(id, true);
    sim.Move(6);
    sim.scheduler().SetPaused(id, false);
  });
}

TEST(SchedulerForkTest, SurvivesTheCloseOfAThirdSessionAtEveryMoment) {
  ExpectHarmless([](Forks& sim, RequestId) {
    ASSERT_TRUE(sim.store().Close(0, "c").ok());
    sim.Add({.prompt_tokens = 80, .max_tokens = 1, .stops_at_eos = false});
  });
}

TEST(SchedulerForkTest, SurvivesAWorkersDeathBetweenForkAndTurn) {
  for (const bool stored : {false, true}) {
    Forks sim;
    sim.Fork("a", "b");
    if (stored) sim.StoreAll();
    sim.KillWorker();
    const Residency residency = sim.Say("b");
    EXPECT_EQ(residency.host_tokens, stored ? kKv : 0);
    EXPECT_EQ(residency.recomputed_tokens, stored ? 0 : kKv);
  }
}

}  // namespace
}  // namespace quire
