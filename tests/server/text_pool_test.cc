// TextPool: limits of jobs and bytes, and no queued job is lost.
#include "server/call/text_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <vector>

namespace quire {
namespace {

constexpr TenantId kTenant = 1, kOther = 2;

TEST(TextPoolTest, RunsAllQueuedJobsBeforeItEnds) {
  std::atomic<int> ran{0};
  {
    TextPool pool(2, 1000, 1000);
    for (int i = 0; i < 500; ++i) {
      while (!pool.Run(kTenant, 1, [&] { ++ran; }).ok()) {
      }
    }
  }
  EXPECT_EQ(ran.load(), 500);
}

TEST(TextPoolTest, RefusesBeyondItsLimitsOfJobsAndBytes) {
  std::binary_semaphore started{0};
  std::binary_semaphore release{0};
  TextPool pool(1, 3, 100);
  ASSERT_TRUE(pool.Run(kTenant, 10,
                       [&] {
                         started.release();
                         release.acquire();
                       })
                  .ok());
  started.acquire();  // the only thread is busy, the queue is empty
  // An empty queue accepts a job larger than the limit; then no bytes are left.
  EXPECT_TRUE(pool.Run(kTenant, 1000, [] {}).ok());
  EXPECT_EQ(pool.Run(kTenant, 1, [] {}).code(), absl::StatusCode::kUnavailable);
  release.release();
}

TEST(TextPoolTest, CountsWaitingJobs) {
  std::binary_semaphore started{0};
  std::binary_semaphore release{0};
  TextPool pool(1, 3, 100);
  ASSERT_TRUE(pool.Run(kTenant, 10,
                       [&] {
                         started.release();
                         release.acquire();
                       })
                  .ok());
  started.acquire();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.Run(kTenant, 1, [] {}).ok());
  EXPECT_EQ(pool.Run(kTenant, 1, [] {}).code(), absl::StatusCode::kUnavailable);
  release.release();
}

TEST(TextPoolTest, AFloodOfOneTenantIsNotAheadOfAnother) {
  std::binary_semaphore started{0};
  std::binary_semaphore release{0};
  std::vector<TenantId> order;  // of one thread
  {
    TextPool pool(1, 100, 1'000'000);
    ASSERT_TRUE(pool.Run(kTenant, 0,
                         [&] {
                           started.release();
                           release.acquire();
                         })
                    .ok());
    started.acquire();
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(pool.Run(kTenant, 10'000, [&] { order.push_back(kTenant); }).ok());
    }
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(pool.Run(kOther, 10'000, [&] { order.push_back(kOther); }).ok());
    }
    release.release();
  }
  ASSERT_EQ(order.size(), 53u);
  // In turn while both wait.
  EXPECT_EQ(std::vector(order.begin(), order.begin() + 6),
            (std::vector<TenantId>{kOther, kTenant, kOther, kTenant, kOther, kTenant}));
}

TEST(TextPoolTest, AFullQueueTakesATenantBelowItsPart) {
  std::binary_semaphore started{0};
  std::binary_semaphore release{0};
  TextPool pool(1, 4, 100);
  ASSERT_TRUE(pool.Run(kTenant, 0,
                       [&] {
                         started.release();
                         release.acquire();
                       })
                  .ok());
  started.acquire();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(pool.Run(kTenant, 25, [] {}).ok());
  EXPECT_FALSE(pool.Run(kTenant, 1, [] {}).ok());
  EXPECT_FALSE(pool.Run(kOther, 51, [] {}).ok()) << "more bytes than half of them";
  EXPECT_TRUE(pool.Run(kOther, 25, [] {}).ok());
  EXPECT_TRUE(pool.Run(kOther, 25, [] {}).ok());
  EXPECT_FALSE(pool.Run(kOther, 0, [] {}).ok()) << "half of the jobs";
  release.release();
}

}  // namespace
}  // namespace quire
