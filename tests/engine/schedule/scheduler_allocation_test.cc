// Scheduler: once warm, planning, retiring, ending and expiring allocate nothing. Adding allocates
// nothing while the queue is within its capacity, however long the request may live.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/worker/fake/null_worker.h"

namespace {
bool counting = false;
int64_t num_allocations = 0;
int64_t largest_allocation = 0;  // bytes
}  // namespace

void* operator new(size_t size) {
  num_allocations += counting;
  if (counting && static_cast<int64_t>(size) > largest_allocation) {
    largest_allocation = static_cast<int64_t>(size);
  }
  if (void* p = std::malloc(size)) return p;
  std::abort();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace quire {
namespace {

template <typename Call>
auto Counted(Call call) {
  counting = true;
  const auto result = call();
  counting = false;
  return result;
}

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
  for (int64_t step = 0; step < 6000; ++step) {
    if (step == 2000) num_allocations = 0;
    while (scheduler.Load().waiting < 150) {
      auto request = MakeRequest(next_id++, step);
      Counted([&] {
        scheduler.Add(std::move(request));
        return true;
      });
    }
    ASSERT_TRUE(Counted([&] { return scheduler.Schedule(step, plans[step % 2], events); }));
    if (step == 0) continue;
    worker.Run(plans[(step + 1) % 2], result);
    Counted([&] {
      scheduler.Retire(result, step, events);
      if (step % 5 == 0) {
        scheduler.Cancel(next_id - 100, FinishReason::kCancelled, step, events);
      }
      scheduler.ExpireDeadlines(step, events);
      return scheduler.NextDeadline() + scheduler.Load().waiting;
    });
    preempted += events.preempted;
    finished += static_cast<int64_t>(events.finishes.size());
    events.tokens.clear();
    events.finishes.clear();
    events.preempted = 0;
  }
  EXPECT_EQ(num_allocations, 0);
  EXPECT_GT(preempted, 0);
  EXPECT_GT(finished, 1000);
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
  num_allocations = largest_allocation = 0;
  for (RequestId id = 1; id <= 1000; ++id) {
    auto request = MakeRequest(id, 0);
    request->sampling.max_tokens = std::numeric_limits<int32_t>::max();
    Counted([&] {
      scheduler.Add(std::move(request));
      return true;
    });
  }
  EXPECT_EQ(num_allocations, 0);
  // Beyond the capacity of the records (1000 and twice the rows), a request adds little memory;
  // now and then an index doubles.
  num_allocations = largest_allocation = 0;
  for (RequestId id = 1001; id <= 1200; ++id) {
    auto request = MakeRequest(id, 0);
    request->sampling.max_tokens = std::numeric_limits<int32_t>::max();
    Counted([&] {
      scheduler.Add(std::move(request));
      return true;
    });
  }
  EXPECT_LE(num_allocations, 200 * 4);
  EXPECT_LE(largest_allocation, 131072);
  scheduler.CheckInvariants();
}

}  // namespace
}  // namespace quire
