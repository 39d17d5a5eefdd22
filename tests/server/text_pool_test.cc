// TextPool: limits of jobs and bytes, and no queued job is lost.
#include "server/call/text_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <semaphore>
#include <utility>
#include <vector>

namespace quire {
namespace {

constexpr TenantId kTenant = 1, kOther = 2;

// A pool whose only thread is busy until the end; the queue is empty.
class BusyPool {
 public:
  BusyPool(size_t max_jobs, size_t max_bytes) : pool_(1, max_jobs, max_bytes) {
    EXPECT_TRUE(pool_
                    .Run(kTenant, 0,
                         [this] {
                           started_.release();
                           released_.acquire();
                         })
                    .ok());
    started_.acquire();
  }
  ~BusyPool() { released_.release(); }

  bool Run(
      TenantId tenant, size_t bytes, std::function<void()> job = [] {}) {
    return pool_.Run(tenant, bytes, std::move(job)).ok();
  }

 private:
  std::binary_semaphore started_{0};
  std::binary_semaphore released_{0};
  TextPool pool_;
};

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
  BusyPool pool(3, 100);
  // An empty queue accepts a job larger than the limit; then no bytes are left.
  EXPECT_TRUE(pool.Run(kTenant, 1000));
  EXPECT_FALSE(pool.Run(kTenant, 1));
}

TEST(TextPoolTest, CountsWaitingJobs) {
  BusyPool pool(3, 100);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.Run(kTenant, 1));
  EXPECT_FALSE(pool.Run(kTenant, 1));
}

TEST(TextPoolTest, AFloodOfOneTenantIsNotAheadOfAnother) {
  std::vector<TenantId> order;  // of one thread
  {
    BusyPool pool(100, 1'000'000);
    const auto note = [&order](TenantId tenant) {
      return [&order, tenant] { order.push_back(tenant); };
    };
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(pool.Run(kTenant, 10'000, note(kTenant)));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(pool.Run(kOther, 10'000, note(kOther)));
  }
  ASSERT_EQ(order.size(), 53u);
  // In turn while both wait.
  EXPECT_EQ(std::vector(order.begin(), order.begin() + 6),
            (std::vector<TenantId>{kOther, kTenant, kOther, kTenant, kOther, kTenant}));
}

TEST(TextPoolTest, AFullQueueTakesATenantBelowItsPart) {
  BusyPool pool(4, 100);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(pool.Run(kTenant, 25));
  EXPECT_FALSE(pool.Run(kTenant, 1));
  EXPECT_FALSE(pool.Run(kOther, 51)) << "more bytes than half of them";
  EXPECT_TRUE(pool.Run(kOther, 25));
  EXPECT_TRUE(pool.Run(kOther, 25));
  EXPECT_FALSE(pool.Run(kOther, 0)) << "half of the jobs";
}

}  // namespace
}  // namespace quire
