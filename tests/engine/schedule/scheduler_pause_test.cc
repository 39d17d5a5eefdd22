// Pausing: a paused request holds no blocks, delays no other request, and loses no token.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

SchedulerConfig Config() {
  SchedulerConfig config;
  config.num_blocks = 33;
  config.block_size = 4;
  config.max_model_len = 64;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 8;
  config.max_num_queued_reqs = 16;
  config.growth_horizon = 8;
  return config;
}

void SetPaused(SimulatedEngine& sim, RequestId id, bool paused) {
  sim.scheduler().SetPaused(id, paused);
  sim.scheduler().CheckInvariants();
}

// Two requests, `depth` steps in flight, up to the `stop`th call of Schedule.
struct Scene {
  Scene(int32_t depth, int32_t stop) : sim(Config()) {
    paused = sim.Add({.prompt_tokens = 20, .max_tokens = 12});
    other = sim.Add({.prompt_tokens = 9, .max_tokens = 12});
    for (int32_t call = 0; call < stop && sim.HasWork(); ++call) {
      if (!sim.Schedule() || sim.steps_in_flight() > depth) sim.Retire();
    }
  }
  SimulatedEngine sim;
  RequestId paused = 0;
  RequestId other = 0;
};

TEST(SchedulerPauseTest, ResumesWithTheSameTokensFromEveryPoint) {
  for (int32_t depth = 0; depth <= 2; ++depth) {
    for (int32_t stop = 0; stop < 25; ++stop) {
      Scene scene(depth, stop);
      SimulatedEngine& sim = scene.sim;
      if (sim.outcome(scene.paused).finished) break;
      SetPaused(sim, scene.paused, true);
      const size_t in_flight = static_cast<size_t>(sim.steps_in_flight());
      const size_t before = sim.outcome(scene.paused).tokens.size();
      while (sim.HasWork() || sim.steps_in_flight() > 0) {
        if (!sim.HasWork() || !sim.Schedule()) {
          sim.Retire();
          continue;
        }
        EXPECT_EQ(sim.ShareOf(scene.paused).count, 0) << "worked on while paused";
        if (sim.steps_in_flight() > depth) sim.Retire();
      }
      sim.ExpectUndisturbed(scene.other);
      EXPECT_LE(sim.outcome(scene.paused).tokens.size(), before + in_flight);
      EXPECT_EQ(sim.load().free_blocks, sim.load().total_blocks) << "a paused request holds blocks";
      if (sim.outcome(scene.paused).finished) continue;  // its last token was in flight
      EXPECT_EQ(sim.load().paused, 1);
      SetPaused(sim, scene.paused, false);
      sim.RunToEnd(depth + 1);
      sim.ExpectUndisturbed(scene.paused);
    }
  }
}

TEST(SchedulerPauseTest, EndingWhilePausedReleasesEverything) {
  for (int32_t depth = 0; depth <= 2; ++depth) {
    for (int32_t stop = 0; stop < 12; ++stop) {
      Scene scene(depth, stop);
      SetPaused(scene.sim, scene.paused, true);
      scene.sim.Cancel(scene.paused);
      EXPECT_EQ(scene.sim.outcome(scene.paused).finish.reason, FinishReason::kCancelled);
      scene.sim.RunToEnd(depth + 1);
      scene.sim.ExpectUndisturbed(scene.other);
      EXPECT_EQ(scene.sim.load().paused, 0);
    }
  }
}

TEST(SchedulerPauseTest, RepeatedAndUnknownCallsChangeNothing) {
  Scene scene(1, 5);
  SetPaused(scene.sim, 999, true);
  SetPaused(scene.sim, scene.paused, false);
  SetPaused(scene.sim, scene.paused, true);
  SetPaused(scene.sim, scene.paused, true);
  SetPaused(scene.sim, scene.paused, false);
  scene.sim.RunToEnd(2);
  scene.sim.ExpectUndisturbed(scene.paused);
  scene.sim.ExpectUndisturbed(scene.other);
}

TEST(SchedulerPauseTest, PausedRequestsSurviveAWorkerDeath) {
  Scene scene(2, 8);
  SetPaused(scene.sim, scene.paused, true);
  scene.sim.KillWorker();
  while (scene.sim.HasWork() && scene.sim.Schedule()) scene.sim.Retire();
  EXPECT_TRUE(scene.sim.outcome(scene.other).finished);
  SetPaused(scene.sim, scene.paused, false);
  scene.sim.RunToEnd(2);
  scene.sim.ExpectUndisturbed(scene.paused);
  scene.sim.ExpectUndisturbed(scene.other);
}

TEST(SchedulerPauseTest, RandomPausesInATinyPoolChangeNoTokens) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SimulatedEngine sim(Config());
    std::vector<RequestId> ids;
    for (int i = 0; i < 12; ++i) {
      ids.push_back(sim.Add({.prompt_tokens = 1 + static_cast<int32_t>(random() % 30),
                             .max_tokens = 1 + static_cast<int32_t>(random() % 30)}));
    }
    for (int call = 0; call < 400; ++call) {
      SetPaused(sim, ids[random() % ids.size()], random() % 2 == 0);
      const int32_t depth = static_cast<int32_t>(random() % 3);
      if (sim.steps_in_flight() > depth || !sim.Schedule()) {
        if (sim.steps_in_flight() > 0) sim.Retire();
      }
    }
    for (const RequestId id : ids) SetPaused(sim, id, false);
    sim.RunToEnd(2);
    for (const RequestId id : ids) sim.ExpectUndisturbed(id);
  }
}

}  // namespace
}  // namespace quire
