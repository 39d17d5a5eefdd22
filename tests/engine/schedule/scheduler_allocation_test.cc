// Scheduler: once warm, planning, retiring, ending and expiring allocate nothing, and neither do KV
// events before the first subscriber and after the last. Adding allocates
// nothing while the queue is within its capacity, however long the request may live.
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "engine/schedule/kv/kv_event_source.h"
#include "engine/schedule/scheduler.h"
#include "engine/worker/fake/null_worker.h"
#include "tests/allocations.h"

namespace quire {
namespace {

std::unique_ptr<Request> MakeRequest(RequestId id, int64_t now_ns) {
  auto request = std::make_unique<Request>();
  request->id = id;
  request->prompt.assign(1 + id % 60, 3);
  request->sampling.max_tokens = static_cast<int32_t>(1 + id % 50);
  request->sampling.eos_token_ids = {1};
  request->sampling.min_tokens = static_cast<int32_t>(id % 2);
  request->priority = static_cast<int32_t>(id % 3);
  request->arrival_ns = now_ns;
  request->deadline_ns = id % 4 == 0 ? now_ns + 500 : kNoDeadline;
  return request;
}

TEST(SchedulerAllocationTest, AllocatesNothingOnceWarm) {
  SchedulerConfig config;
  config.num_blocks = 200;  // short, so that some are preempted
  config.block_size = 4;
  config.max_model_len = 128;
  config.max_num_seqs = 32;
  config.max_num_batched_tokens = 96;
  config.max_num_queued_reqs = 200;
  config.growth_horizon = 0;
  Scheduler scheduler(config);
  NullWorker worker(1000);
  SchedulerEvents events;
  StepPlan plans[2];
  StepResult result;
  RequestId next_id = 1;
  int32_t preempted = 0;
  int64_t finished = 0;
  size_t told = 0;
  Allocations allocations;
  for (int64_t step = 0; step < 6000; ++step) {
    if (step == 2000) allocations = {};
    if (step == 500) scheduler.kv_events().Begin(0);
    if (scheduler.kv_events().Tells(0)) {
      scheduler.kv_events().Continue(100);
      for (const auto& change : scheduler.kv_events().Take()) told += change.events.size();
    }
    if (step == 1500) scheduler.kv_events().End(0);
    while (scheduler.Load().waiting < 150) {
      auto request = MakeRequest(next_id++, step);
      allocations += AllocationsOf([&] { scheduler.Add(std::move(request)); });
    }
    bool any = false;
    allocations += AllocationsOf([&] { any = scheduler.Schedule(step, plans[step % 2], events); });
    ASSERT_TRUE(any);
    if (step == 0) continue;
    worker.Run(plans[(step + 1) % 2], result);
    allocations += AllocationsOf([&] {
      scheduler.Retire(result, step, events);
      if (step % 5 == 0) {
        scheduler.Cancel(next_id - 100, FinishReason::kCancelled, step, events);
      }
      scheduler.ExpireDeadlines(step, events);
      scheduler.NextDeadline();
      scheduler.Load();
    });
    preempted += events.preempted;
    finished += static_cast<int64_t>(events.finishes.size());
    events.tokens.clear();
    events.finishes.clear();
    events.preempted = 0;
  }
  EXPECT_EQ(allocations.num, 0);
  EXPECT_GT(preempted, 0);
  EXPECT_GT(finished, 1000);
  EXPECT_GT(told, 1000u);
}

// A request without max_tokens may run to the end of the context. It holds no memory for that
// output while it waits.
TEST(SchedulerAllocationTest, WaitingCostsThePromptOnly) {
  SchedulerConfig config;
  config.num_blocks = 10000;
  config.block_size = 16;
  config.max_model_len = 131072;
  config.max_num_seqs = 2;
  config.max_num_batched_tokens = 64;
  config.max_num_queued_reqs = 1000;
  Scheduler scheduler(config);
  SchedulerEvents events;
  events.finishes.reserve(1000);
  Allocations allocations;
  for (RequestId id = 1; id <= 1000; ++id) {
    auto request = MakeRequest(id, 0);
    request->sampling.max_tokens = std::numeric_limits<int32_t>::max();
    allocations += AllocationsOf([&] { scheduler.Add(std::move(request)); });
  }
  EXPECT_EQ(allocations.num, 0);
  // Beyond the capacity of the records (1000 and twice the rows), a request adds little memory;
  // now and then an index doubles.
  allocations = {};
  for (RequestId id = 1001; id <= 1200; ++id) {
    auto request = MakeRequest(id, 0);
    request->sampling.max_tokens = std::numeric_limits<int32_t>::max();
    allocations += AllocationsOf([&] { scheduler.Add(std::move(request)); });
  }
  EXPECT_LE(allocations.num, 200 * 4);
  EXPECT_LE(allocations.largest, 131072);
  scheduler.CheckInvariants();
}

}  // namespace
}  // namespace quire
