// Scheduler, sessions and tiers: turns find their session's KV in every tier, and a disturbance at
// any moment of a restore or a store costs only time. Moments are enumerated, not random: each test
// runs once for each of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

using testing::ElementsAre;

constexpr int64_t kSecond = 1'000'000'000;

SchedulerConfig Config(int32_t usable_blocks = 60, int32_t num_pages = 60) {
  return SessionConfig(usable_blocks, num_pages, /*max_model_len=*/200);
}

// A turn of session "s": 10 tokens in, 9 out.
RequestSpec Turn() {
  return {.prompt_tokens = 10, .max_tokens = 9, .stops_at_eos = false, .session = "s"};
}

class Conversation : public SimulatedEngine {
 public:
  explicit Conversation(const SchedulerConfig& config = Config(), const ShadowFaults& faults = {})
      : SimulatedEngine(config, {}, faults) {
    CreateSession(0, "s");
  }

  SessionStore& store() { return scheduler().sessions(); }
  SessionInfo Info() { return store().Get(0, "s").value(); }
  // Runs a whole turn. Returns its residency.
  Residency Say() {
    const RequestId id = Add(Turn());
    EXPECT_NE(id, 0u);
    RunToEnd(2);
    ExpectUndisturbed(id);
    return outcome(id).finish.residency;
  }
  void Offload() {
    EXPECT_TRUE(store().Offload(0, "s", now_ns).ok());
    RunCopies();
    now_ns += kSecond;
    OnTimer();
  }
  // Does the next action of the engine's loop; each is a moment. False: there is nothing to do.
  bool Move(int32_t turn) {
    for (int32_t i = 0; i < 10; ++i) {
      switch ((turn + i) % 5) {
        case 0:
          if (SendCopy()) return true;
          break;
        case 1:
          if (steps_in_flight() < 2 && HasWork() && Schedule()) return true;
          break;
        case 2:
          if (FinishCopy(CopyDirection::kLoad)) return true;
          break;
        case 3:
          if (FinishCopy(CopyDirection::kStore)) return true;
          break;
        default:
          if (steps_in_flight() == 0) break;
          Retire();
          return true;
      }
    }
    return false;
  }
};

TEST(SchedulerRestoreTest, ATurnFindsAllKvOfItsSessionOnTheDevice) {
  Conversation sim;
  EXPECT_EQ(sim.Say().outcome, Residency::Outcome::kNone);
  const RequestId id = sim.Add(Turn());
  sim.Schedule();
  // The last of 19 tokens was never computed. The turn takes over the tail of two.
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{id, 18, 11, true}));
  sim.RunToEnd(2);
  const Residency residency = sim.outcome(id).finish.residency;
  EXPECT_EQ(residency.outcome, Residency::Outcome::kDevice);
  EXPECT_EQ(residency.device_tokens, 18);
  EXPECT_EQ(residency.recomputed_tokens, 0);
  EXPECT_EQ(sim.Info().position, 38);
  EXPECT_EQ(sim.Info().state, SessionState::kResidentIdle);
}

TEST(SchedulerRestoreTest, ATurnOfAnOffloadedSessionIsRestored) {
  Conversation sim;
  sim.Say();
  sim.Offload();
  EXPECT_EQ(sim.Info().state, SessionState::kHost);
  EXPECT_EQ(sim.load().cached_blocks, 0);
  const RequestId id = sim.Add(Turn());
  EXPECT_FALSE(sim.Schedule());
  EXPECT_EQ(sim.load().restoring, 1);
  EXPECT_TRUE(sim.scheduler().WaitsForCopies());
  sim.RunCopies();
  sim.Schedule();
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{id, 18, 11, true}));
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(id);
  const Residency residency = sim.outcome(id).finish.residency;
  EXPECT_EQ(residency.outcome, Residency::Outcome::kRestored);
  EXPECT_EQ(residency.device_tokens, 0);
  EXPECT_EQ(residency.host_tokens, 18);
}

TEST(SchedulerRestoreTest, StoresOnlyNewBlocksWhenIdleAgain) {
  Conversation sim;
  sim.Say();
  sim.Offload();
  sim.Say();
  const int64_t before = sim.scheduler().tiering_stats().stored_blocks;
  EXPECT_EQ(before, 5);
  sim.Offload();
  EXPECT_EQ(sim.scheduler().tiering_stats().stored_blocks - before, 6);  // 37 tokens, 16 are there
}

TEST(SchedulerRestoreTest, OtherRequestsRunDuringARestore) {
  Conversation sim;
  sim.Say();
  sim.Offload();
  const RequestId turn = sim.Add(Turn());
  const RequestId other = sim.Add({.prompt_tokens = 5, .max_tokens = 3, .stops_at_eos = false});
  sim.Schedule();
  EXPECT_THAT(sim.last_plan(), ElementsAre(Share{other, 0, 5, true}));
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(turn);
  sim.ExpectUndisturbed(other);
}

// The text layer found a stop string: the client never received the tokens behind it.
TEST(SchedulerRestoreTest, KeepsOnlyTokensTheClientReceived) {
  for (int32_t keep = 0; keep <= 6; ++keep) {
    Conversation sim;
    sim.Say();
    const RequestId id = sim.Add(Turn());
    while (sim.outcome(id).tokens.size() < 6) {
      sim.Schedule();
      sim.Retire();
    }
    sim.Schedule();
    sim.Cancel(id, FinishReason::kStopText, keep);
    EXPECT_FALSE(sim.outcome(id).finished);  // a step knows it still
    sim.Retire();
    EXPECT_EQ(sim.outcome(id).finish.position, 29 + keep);
    EXPECT_EQ(sim.Say().device_tokens, std::min(29 + keep, 34));  // the sixth has no KV yet
  }
}

TEST(SchedulerRestoreTest, ATurnThatFailedLeavesItsSessionAsItWas) {
  for (const int32_t steps : {0, 1, 2, 3, 7}) {
    Conversation sim;
    sim.Say();
    const RequestId id = sim.Add(Turn());
    for (int32_t i = 0; i < steps; ++i) {
      sim.Schedule();
      sim.Retire();
    }
    sim.Cancel(id);
    EXPECT_EQ(sim.Info().position, 19);
    const Residency residency = sim.Say();
    EXPECT_GE(residency.device_tokens, 18);
    EXPECT_EQ(residency.recomputed_tokens, 0);
  }
}

TEST(SchedulerRestoreTest, APreemptedRequestOfASessionIsRestored) {
  // Room for the turn and a little more; a request of higher priority takes all of it.
  Conversation sim(Config(14, 60));
  sim.Say();
  sim.Offload();
  RequestSpec spec = Turn();
  spec.max_tokens = 24;
  const RequestId turn = sim.Add(spec);
  sim.RunCopies();
  while (sim.outcome(turn).tokens.size() < 3) {
    sim.Schedule();
    sim.RunCopies();
    if (sim.steps_in_flight() > 0) sim.Retire();
  }
  const RequestId big =
      sim.Add({.prompt_tokens = 10, .max_tokens = 40, .priority = 1, .stops_at_eos = false});
  sim.RunToEnd(1);
  EXPECT_GT(sim.preempted(), 0);
  EXPECT_GT(sim.scheduler().tiering_stats().loaded_blocks, 5);  // twice
  sim.ExpectUndisturbed(turn);
  sim.ExpectUndisturbed(big);
}

// A preempted request without a session: its KV is stored before other sequences take its blocks.
TEST(SchedulerRestoreTest, APreemptedRequestWithoutASessionIsRestored) {
  Conversation sim(Config(14, 60));
  const RequestId winner = sim.Add({.prompt_tokens = 10, .max_tokens = 40, .stops_at_eos = false});
  const RequestId victim = sim.Add({.prompt_tokens = 10, .max_tokens = 24, .stops_at_eos = false});
  for (; sim.preempted() == 0; sim.Retire()) ASSERT_TRUE(sim.Schedule());
  sim.RunCopies();
  const int64_t stored = sim.scheduler().tiering_stats().stored_blocks;
  EXPECT_GE(stored, 4);
  int32_t resumed_at = -1;
  while (!sim.outcome(victim).finished) {
    if (sim.Schedule()) {
      if (sim.ShareOf(victim).count > 0 && resumed_at < 0) resumed_at = sim.ShareOf(victim).start;
      sim.Retire();
    } else {
      sim.RunCopies();
    }
  }
  EXPECT_GT(sim.scheduler().tiering_stats().loaded_blocks, 0);
  EXPECT_GE(resumed_at, 4 * stored);
  EXPECT_EQ(sim.preempted(), 1);
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(winner);
  sim.ExpectUndisturbed(victim);
  sim.ExpectIdle();
}

// Copies of a preempted sequence's KV hold its blocks. The sequences that need them wait for the
// copies and preempt no other sequence.
TEST(SchedulerRestoreTest, StoresOfAPreemptedSequenceCauseNoPreemption) {
  Conversation sim(Config(14, 60)), without(Config(14, 0));
  for (Conversation* each : {&sim, &without}) {
    for (int i = 0; i < 3; ++i) {
      each->Add({.prompt_tokens = 6, .max_tokens = 24, .stops_at_eos = false});
    }
    // One step is on its way while the copies are.
    while (each->HasWork()) {
      each->SendCopy();
      if (each->Schedule()) each->Retire();
      each->FinishCopy(CopyDirection::kStore);
      each->FinishCopy(CopyDirection::kLoad);
    }
  }
  EXPECT_GT(without.preempted(), 0);
  EXPECT_LE(sim.preempted(), without.preempted());
  EXPECT_GT(sim.scheduler().tiering_stats().stored_blocks, 0);
}

// Copies are slower than the requests that wait for blocks, or never end. Blocks that wait to be
// copied cause no preemption and cost no step.
TEST(SchedulerRestoreTest, SlowStoresOfPreemptedSequencesDelayNoStep) {
  constexpr int32_t kNever = 1'000'000;
  for (const int32_t steps_a_job : {16, kNever}) {
    SchedulerConfig config = Config(100, 400);
    config.max_num_seqs = 8;
    config.tiering.block_bytes = CopyJob::kMaxBytes / 8;
    Conversation slow(config);
    config.num_pages = 0;
    Conversation without(config);
    std::map<Conversation*, int32_t> steps;
    for (Conversation* sim : {&slow, &without}) {
      for (int32_t i = 0; i < 24; ++i) {
        sim->Add({.prompt_tokens = 20 + i, .max_tokens = 40 + 3 * i, .stops_at_eos = false});
      }
      while (sim->HasWork()) {
        while (sim->SendCopy()) {
        }
        if (sim->Schedule()) sim->Retire();
        ASSERT_LT(++steps[sim], 10000) << "no progress";
        if (steps[sim] % steps_a_job != 0) continue;
        sim->FinishCopy(CopyDirection::kStore);
        sim->FinishCopy(CopyDirection::kLoad);
      }
    }
    EXPECT_GT(without.preempted(), 0);
    EXPECT_LE(slow.preempted(), 1.5 * without.preempted());
    EXPECT_LE(steps[&slow], 1.5 * steps[&without]);
    EXPECT_EQ(slow.scheduler().tiering_stats().stored_blocks > 0, steps_a_job < kNever);
  }
}

// When the first of a preempted sequence's copies is late, the copies behind it give back their
// blocks; the late one keeps its own.
TEST(SchedulerRestoreTest, CopiesBehindALateStoreReleaseTheirBlocks) {
  SchedulerConfig config = Config(40, 60);
  config.tiering.block_bytes = CopyJob::kMaxBytes;  // a copy a job
  Conversation sim(config);
  sim.Add({.prompt_tokens = 20, .max_tokens = 100, .stops_at_eos = false});
  sim.Add({.prompt_tokens = 60, .max_tokens = 80, .stops_at_eos = false});
  for (; sim.preempted() == 0; sim.Retire()) ASSERT_TRUE(sim.Schedule());
  for (int32_t i = 0; i < CopyJob::kMaxInFlight; ++i) EXPECT_TRUE(sim.SendCopy());
  sim.CancelAll(FinishReason::kCancelled);
  const int32_t total = sim.load().total_blocks;
  EXPECT_LT(sim.load().free_blocks, total - 10);
  sim.now_ns += 20 * kSecond;
  sim.SendCopy();
  EXPECT_EQ(sim.load().free_blocks, total - CopyJob::kMaxInFlight);
  sim.RunCopies();
  EXPECT_EQ(sim.load().free_blocks, total);
}

// The KV of a whole pool is copied to the host slowly. A request that has no room waits as long as
// such copies usually take, and after that for no copy that has not been sent.
TEST(SchedulerRestoreTest, ARequestDoesNotWaitForSlowCopies) {
  SchedulerConfig config = Config(60, 60);
  config.tiering.block_bytes = CopyJob::kMaxBytes;  // a copy a job
  Conversation sim(config);
  const RequestId turn =
      sim.Add({.prompt_tokens = 180, .max_tokens = 4, .stops_at_eos = false, .session = "s"});
  sim.RunToEnd(1);
  EXPECT_TRUE(sim.store().Offload(0, "s", sim.now_ns).ok());
  for (int32_t i = 0; i < CopyJob::kMaxInFlight; ++i) EXPECT_TRUE(sim.SendCopy());
  const RequestId waiting = sim.Add({.prompt_tokens = 190, .max_tokens = 4, .stops_at_eos = false});
  EXPECT_FALSE(sim.Schedule());
  sim.now_ns += kSecond;
  EXPECT_FALSE(sim.Schedule());
  EXPECT_LE(sim.scheduler().NextTimer(), sim.now_ns + kSecond);
  sim.now_ns += kSecond;
  EXPECT_TRUE(sim.Schedule());
  sim.RunToEnd(1);
  sim.ExpectUndisturbed(turn);
  sim.ExpectUndisturbed(waiting);
  EXPECT_EQ(sim.preempted(), 0);
  // The blocks of copies that had been sent are on the host, and the turn finds them there.
  EXPECT_EQ(sim.scheduler().tiering_stats().stored_blocks, CopyJob::kMaxInFlight);
  EXPECT_GT(sim.Say().host_tokens, 0);
}

// Blocks do not help a request that waits for the end of a pin, so slow copies go on beside it.
TEST(SchedulerRestoreTest, ARequestThatPinsHoldUpTakesNoSlowCopiesBack) {
  SchedulerConfig config = Config(60, 60);
  config.tiering.block_bytes = CopyJob::kMaxBytes;  // a copy a job
  config.sessions.max_pinned_share = 0.25;
  Conversation sim(config);
  sim.CreateSession(0, "pinned");
  for (const char* session : {"s", "pinned"}) {
    sim.Add({.prompt_tokens = *session == 's' ? 100 : 56,
             .max_tokens = 4,
             .stops_at_eos = false,
             .session = session});
    sim.RunToEnd(1);
  }
  ASSERT_TRUE(sim.store().Pin(0, "pinned", sim.now_ns).ok());
  ASSERT_TRUE(sim.store().Offload(0, "s", sim.now_ns).ok());
  for (int32_t i = 0; i < CopyJob::kMaxInFlight; ++i) EXPECT_TRUE(sim.SendCopy());
  sim.Add({.prompt_tokens = 190, .max_tokens = 4, .stops_at_eos = false});
  const int32_t free = sim.load().free_blocks;
  for (int second = 0; second < 4; ++second) {
    EXPECT_FALSE(sim.Schedule());
    EXPECT_TRUE(sim.load().held_up);
    EXPECT_EQ(sim.load().free_blocks, free) << second;
    sim.now_ns += kSecond;
  }
  sim.RunCopies();
  EXPECT_EQ(sim.scheduler().tiering_stats().stored_blocks, 26);
}

// The pipeline is full, so no plan can end the restore. Its time must not stay the next timer: a
// thread that sleeps until the next timer would not sleep at all.
TEST(SchedulerRestoreTest, ALateRestoreIsNoTimerWhileStepsAreInFlight) {
  Conversation sim;
  sim.Say();
  sim.Offload();
  sim.Add(Turn());
  sim.Add({.prompt_tokens = 5, .max_tokens = 30, .stops_at_eos = false});
  while (sim.SendCopy()) {
  }
  EXPECT_TRUE(sim.Schedule());
  EXPECT_TRUE(sim.SendCopy());
  EXPECT_EQ(sim.load().restoring, 1);
  ASSERT_NE(sim.scheduler().NextTimer(), kNoDeadline);
  const int64_t deadline_ns = sim.scheduler().NextTimer();
  sim.now_ns = deadline_ns;
  sim.OnTimer();
  EXPECT_EQ(sim.scheduler().tiering_stats().restores_late, 1);
  EXPECT_FALSE(sim.SendCopy());  // marks late jobs
  EXPECT_GT(sim.scheduler().NextTimer(), deadline_ns);
  sim.RunToEnd(2);
}

// A client pins a session whose blocks a running request was to evict. The request waits in the
// queue until the pin ends, as one that came later would.
TEST(SchedulerRestoreTest, ARequestThatPinsStarveWaitsForTheirEnd) {
  SchedulerConfig config = Config(12, 0);
  config.sessions.max_pinned_share = 0.5;
  Conversation sim(config);
  sim.Say();
  const RequestId id = sim.Add({.prompt_tokens = 20, .max_tokens = 28, .stops_at_eos = false});
  ASSERT_TRUE(sim.Schedule());
  sim.Retire();
  ASSERT_TRUE(sim.store().Pin(0, "s", sim.now_ns).ok());
  while (sim.Schedule()) sim.Retire();
  EXPECT_GT(sim.outcome(id).tokens.size(), 4u);
  EXPECT_FALSE(sim.outcome(id).finished);
  // It waits as the engine expects it: for something that is not a sequence.
  EXPECT_EQ(sim.load().running, 0);
  EXPECT_EQ(sim.load().waiting, 1);
  EXPECT_TRUE(sim.scheduler().WaitsForCopies());
  const RequestId small = sim.Add({.prompt_tokens = 4, .max_tokens = 3, .stops_at_eos = false});
  while (sim.Schedule()) sim.Retire();
  EXPECT_TRUE(sim.outcome(small).finished) << "others are blocked too";
  ASSERT_TRUE(sim.store().Unpin(0, "s", sim.now_ns).ok());
  sim.RunToEnd(2);
  sim.ExpectUndisturbed(id);
}

// A turn of a session with KV is admitted before first prompts that arrived up to ten seconds
// earlier, and after those that have waited longer.
TEST(SchedulerRestoreTest, AReturningTurnOvertakesFirstPromptsForTenSeconds) {
  for (const bool within : {true, false}) {
    Conversation sim(Config(60, 60));
    sim.Say();
    const RequestId runs = sim.Add({.prompt_tokens = 150, .max_tokens = 20});
    EXPECT_TRUE(sim.Schedule());  // the pool has no room for another
    RequestSpec first = {.prompt_tokens = 150, .max_tokens = 4, .stops_at_eos = false};
    first.arrival_ns = sim.now_ns;
    RequestSpec turn = Turn();
    turn.prompt_tokens = 100;
    turn.arrival_ns = sim.now_ns + 10 * kSecond + (within ? -1 : 1);
    const RequestId waits = sim.Add(first);
    const RequestId returns = sim.Add(turn);
    sim.Cancel(runs);
    sim.Retire();
    EXPECT_TRUE(sim.Schedule());
    ASSERT_EQ(sim.last_plan().size(), 1u);
    EXPECT_EQ(sim.last_plan()[0].id, within ? returns : waits);
    sim.RunToEnd(1);
    sim.ExpectUndisturbed(waits);
    sim.ExpectUndisturbed(returns);
  }
}

// --- Every moment.

struct Disturbance {
  const char* name;
  std::function<void(Conversation&, RequestId)> act;
};

std::vector<Disturbance> Disturbances() {
  return {
      {"cancel", [](Conversation& sim, RequestId id) { sim.Cancel(id); }},
      {"stop", [](Conversation& sim, RequestId id) { sim.Cancel(id, FinishReason::kStopText, 1); }},
      {"pause",
       [](Conversation& sim, RequestId id) {
         sim.scheduler().SetPaused(id, true);
         sim.Move(0);
         sim.scheduler().SetPaused(id, false);
       }},
      {"death", [](Conversation& sim, RequestId) { sim.KillWorker(); }},
      {"touch",
       [](Conversation& sim, RequestId) {
         // Refused while the turn runs, and harmless.
         static_cast<void>(sim.store().Offload(0, "s", sim.now_ns));
         static_cast<void>(sim.store().Prefetch(0, "s", sim.now_ns));
         static_cast<void>(sim.store().Pin(0, "s", sim.now_ns));
         static_cast<void>(sim.store().Unpin(0, "s", sim.now_ns));
       }},
      {"time",
       [](Conversation& sim, RequestId) {
         sim.now_ns += 1000 * kSecond;
         sim.OnTimer();
       }},
      {"crowd", [](Conversation& sim, RequestId) {
         for (int32_t i = 0; i < 4; ++i) {
           sim.Add({.prompt_tokens = 30, .max_tokens = 20, .priority = 1, .stops_at_eos = false});
         }
       }}};
}

// The conversation continues after the disturbance, and nothing is held at its end.
void Conclude(Conversation& sim, RequestId id) {
  sim.RunToEnd(2);
  EXPECT_TRUE(sim.outcome(id).finished);
  sim.CheckSession(0, "s");
  sim.Say();
  sim.Offload();
  sim.Say();
  ASSERT_TRUE(sim.store().Close(0, "s").ok());
  sim.ExpectIdle();
  EXPECT_EQ(sim.scheduler().cache_stats().host_pages_used, 0);
}

// Restores a session and disturbs the restore at the `moment`-th action; false if it ended before.
bool DisturbRestore(const Disturbance& disturbance, int32_t moment, const ShadowFaults& faults) {
  Conversation sim(Config(40, 30), {.seed = faults.seed});
  sim.Say();
  sim.Say();
  sim.Offload();
  EXPECT_EQ(sim.load().cached_blocks, 0);
  const RequestId id = sim.Add(Turn());
  for (int32_t i = 0; i < moment; ++i) {
    if (!sim.Move(i)) return false;
  }
  disturbance.act(sim, id);
  Conclude(sim, id);
  return true;
}

TEST(SchedulerRestoreTest, SurvivesEveryDisturbanceAtEveryMomentOfARestore) {
  for (const Disturbance& disturbance : Disturbances()) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      int32_t moment = 0;
      for (;; ++moment) {
        SCOPED_TRACE(std::string(disturbance.name) + " at moment " + std::to_string(moment));
        if (!DisturbRestore(disturbance, moment, {.seed = seed}) || testing::Test::HasFailure())
          break;
      }
      EXPECT_GT(moment, 20);
    }
  }
}

// Stores a session, begins its next turn at every moment of the store, and disturbs both at every
// later moment.
bool DisturbStore(const Disturbance& disturbance, int32_t begin, int32_t moment) {
  Conversation sim(Config(40, 30));
  sim.Say();
  EXPECT_TRUE(sim.store().Offload(0, "s", sim.now_ns).ok());
  for (int32_t i = 0; i < begin; ++i) {
    if (!sim.Move(i)) return false;
  }
  const RequestId id = sim.Add(Turn());
  for (int32_t i = 0; i < moment; ++i) {
    if (!sim.Move(i)) return false;
  }
  disturbance.act(sim, id);
  Conclude(sim, id);
  return true;
}

TEST(SchedulerRestoreTest, SurvivesEveryDisturbanceAtEveryMomentOfAStore) {
  for (const Disturbance& disturbance : Disturbances()) {
    int32_t moments = 0;
    for (int32_t begin = 0; DisturbStore(disturbance, begin, 0); ++begin) {
      for (int32_t moment = 1; DisturbStore(disturbance, begin, moment); ++moment) {
        SCOPED_TRACE(std::string(disturbance.name) + " at moment " + std::to_string(moment));
        ASSERT_FALSE(testing::Test::HasFailure());
        ++moments;
      }
    }
    EXPECT_GT(moments, 20);
  }
}

TEST(SchedulerRestoreTest, ComputesKvThatIsNotRestored) {
  for (const ShadowFaults& faults : {ShadowFaults{.fail = 1.0}, ShadowFaults{.corrupt = 1.0}}) {
    Conversation sim(Config(), faults);
    sim.Say();
    sim.Offload();
    const bool stored = sim.Info().state == SessionState::kHost;
    EXPECT_EQ(stored, faults.fail == 0);
    const Residency residency = sim.Say();
    EXPECT_EQ(residency.recomputed_tokens, stored ? 18 : 0);
    EXPECT_EQ(residency.outcome,
              stored ? Residency::Outcome::kRecomputed : Residency::Outcome::kDevice);
    EXPECT_EQ(sim.scheduler().tiering_stats().corrupt_pages > 0, stored);
  }
}

// --- Many.

TEST(SchedulerRestoreTest, TenThousandIdleSessionsComeBackToAPoolForFifty) {
  constexpr int32_t kSessions = 10000;
  SchedulerConfig config = Config(50 * 10, kSessions * 10);
  config.sessions.max_sessions = config.sessions.max_sessions_per_tenant = kSessions;
  config.sessions.default_idle_offload_seconds = 0;
  config.max_num_seqs = 16;
  SimulatedEngine sim(config);
  sim.check_every = 100000;
  const auto name = [](int32_t i) { return "session-" + std::to_string(i); };
  for (int32_t i = 0; i < kSessions; ++i) sim.CreateSession(0, name(i));
  int64_t restored = 0;
  for (int32_t turn = 0; turn < 2; ++turn) {
    for (int32_t i = 0; i < kSessions; i += 10) {
      std::vector<RequestId> ids;
      for (int32_t j = 0; j < 10; ++j) {
        RequestSpec spec = Turn();
        spec.session = name((i + j) * 7919 % kSessions);
        ids.push_back(sim.Add(spec));
      }
      sim.RunToEnd(2);
      sim.now_ns += 1'000'000;
      for (const RequestId id : ids) {
        sim.ExpectUndisturbed(id);
        restored += sim.outcome(id).finish.residency.outcome == Residency::Outcome::kRestored;
      }
      ASSERT_FALSE(testing::Test::HasFailure());
    }
  }
  EXPECT_EQ(restored, kSessions);
  EXPECT_EQ(sim.scheduler().cache_stats().sessions, kSessions);
}

}  // namespace
}  // namespace quire
