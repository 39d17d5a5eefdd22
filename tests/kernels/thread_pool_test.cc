// ThreadPool: each of many jobs visits every index once, with more and fewer workers than cores.
#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/kernels/cases.h"

namespace quire::cpu {
namespace {

TEST(ThreadPoolTest, VisitsEveryIndexOnceInRangesNoLongerThanTheGrain) {
  for (int threads : {1, 2, 5}) {
    for (bool may_spin : {false, true}) {
      ThreadPool pool(threads, may_spin);
      EXPECT_EQ(pool.threads(), threads);
      Random random(threads);
      for (int job = 0; job < 300; ++job) {
        const int64_t count = random.Below(200), grain = 1 + random.Below(20);
        std::vector<std::atomic<int>> visits(count);
        std::atomic<int> too_long = 0;
        pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
          if (threads > 1 && end - begin > grain) ++too_long;
          for (int64_t i = begin; i < end; ++i) ++visits[i];
        });
        EXPECT_EQ(too_long, 0);
        for (const auto& v : visits) ASSERT_EQ(v, 1);
      }
    }
  }
}

TEST(ThreadPoolTest, WorkerJoinsWhileTheCallerIsBlocked) {
  ThreadPool pool(2, false);
  std::atomic<int> inside = 0;
  // Each range waits for the other, so the job ends only if two threads run it.
  pool.ParallelFor(2, 1, [&](int64_t, int64_t) {
    ++inside;
    inside.notify_all();
    for (int seen = inside; seen < 2; seen = inside) inside.wait(seen);
  });
  EXPECT_EQ(inside, 2);
}

TEST(ThreadPoolTest, StopsWithWorkersAsleepAndAwake) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(3, i % 2 == 0);
    if (i % 3 == 0) pool.ParallelFor(10, 1, [](int64_t, int64_t) {});
  }
}

}  // namespace
}  // namespace quire::cpu
