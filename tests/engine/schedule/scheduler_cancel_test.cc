// Ends from outside at every possible point: one fixed run with preemptions, cut after each of its
// calls and disturbed there. Enumerated, not sampled.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <tuple>

#include "tests/engine/schedule/simulated_engine.h"

namespace quire {
namespace {

constexpr int32_t kNumRequests = 6;

SchedulerConfig Config() {
  SchedulerConfig config;
  config.num_blocks = 10;
  config.block_size = 2;
  config.max_model_len = 32;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 6;
  config.max_num_queued_reqs = 16;
  config.growth_horizon = 0;
  return config;
}

// Some end at EOS with steps in flight, some at max_tokens.
ShadowModel Model() {
  ShadowModel model;
  model.eos_probability = 0.04;
  return model;
}

void AddRequests(SimulatedEngine& sim) {
  for (int32_t i = 0; i < kNumRequests; ++i) {
    sim.Add({.prompt_tokens = 2 + i % 4, .max_tokens = 10 - i % 3, .deadline_ns = 1000 + i});
  }
}

// One call: a step if there is room for one and something to run, else a result.
void Advance(SimulatedEngine& sim, int32_t depth) {
  if (sim.steps_in_flight() < depth && sim.Schedule()) return;
  sim.Retire();
}

int32_t NumCalls(int32_t depth) {
  SimulatedEngine sim(Config(), Model());
  AddRequests(sim);
  int32_t calls = 0;
  for (; sim.HasWork() || sim.steps_in_flight() > 0; ++calls) Advance(sim, depth);
  EXPECT_GT(sim.preempted(), 0);
  return calls;
}

// Runs `calls` calls, then `disturb`, then to the end.
void RunDisturbed(int32_t depth, int32_t calls,
                  const std::function<void(SimulatedEngine&)>& disturb,
                  const std::function<void(SimulatedEngine&)>& check) {
  SimulatedEngine sim(Config(), Model());
  AddRequests(sim);
  for (int32_t call = 0; call < calls; ++call) Advance(sim, depth);
  disturb(sim);
  sim.RunToEnd(depth);
  check(sim);
}

TEST(SchedulerCancelTest, CancelsAtEveryPointWithoutEffectOnOtherRequests) {
  std::set<std::tuple<int32_t, bool>> seen;  // (steps in flight, the request had begun)
  for (const int32_t depth : {1, 2, 3}) {
    const int32_t num_calls = NumCalls(depth);
    for (int32_t calls = 0; calls <= num_calls; ++calls) {
      for (RequestId id = 1; id <= kNumRequests; ++id) {
        bool was_live = false;
        const auto cancel = [&](SimulatedEngine& sim) {
          was_live = !sim.outcome(id).finished;
          seen.emplace(sim.steps_in_flight(), !sim.outcome(id).tokens.empty());
          sim.Cancel(id);
          EXPECT_TRUE(sim.outcome(id).finished);
          sim.Cancel(id);  // the request is gone: no effect
        };
        RunDisturbed(depth, calls, cancel, [&](SimulatedEngine& sim) {
          for (RequestId other = 1; other <= kNumRequests; ++other) {
            if (other != id || !was_live) sim.ExpectUndisturbed(other);
          }
          if (was_live) {
            EXPECT_EQ(sim.outcome(id).finish.reason, FinishReason::kCancelled);
          }
        });
        ASSERT_FALSE(testing::Test::HasFailure())
            << "depth " << depth << ", after call " << calls << ", request " << id;
      }
    }
  }
  for (const int32_t in_flight : {0, 1, 2}) {
    EXPECT_TRUE(seen.contains({in_flight, true})) << in_flight;
    EXPECT_TRUE(seen.contains({in_flight, false})) << in_flight;
  }
}

TEST(SchedulerCancelTest, EndsEverythingAtEveryPoint) {
  for (const int32_t depth : {1, 2, 3}) {
    const int32_t num_calls = NumCalls(depth);
    for (int32_t calls = 0; calls <= num_calls; ++calls) {
      const auto drain = [](SimulatedEngine& sim) {
        sim.CancelAll(FinishReason::kDraining);
        EXPECT_FALSE(sim.HasWork());
      };
      RunDisturbed(depth, calls, drain, [](SimulatedEngine&) {});
      const auto expire = [](SimulatedEngine& sim) {
        sim.now_ns = 1002;  // the first three
        sim.ExpireDeadlines();
      };
      RunDisturbed(depth, calls, expire, [](SimulatedEngine& sim) {
        for (RequestId id = 4; id <= kNumRequests; ++id) sim.ExpectUndisturbed(id);
      });
      ASSERT_FALSE(testing::Test::HasFailure()) << "depth " << depth << ", after call " << calls;
    }
  }
}

TEST(SchedulerCancelTest, LosesNoTokenWhereverTheWorkerDies) {
  for (const int32_t depth : {1, 2, 3}) {
    const int32_t num_calls = NumCalls(depth);
    for (int32_t calls = 0; calls <= num_calls; ++calls) {
      const auto kill = [](SimulatedEngine& sim) { sim.KillWorker(); };
      RunDisturbed(depth, calls, kill, [](SimulatedEngine& sim) {
        for (RequestId id = 1; id <= kNumRequests; ++id) sim.ExpectUndisturbed(id);
      });
      ASSERT_FALSE(testing::Test::HasFailure()) << "depth " << depth << ", after call " << calls;
    }
  }
}

}  // namespace
}  // namespace quire
