// TextPool: limits of jobs and bytes, and no queued job is lost.
#include "server/call/text_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>

namespace quire {
namespace {

TEST(TextPoolTest, RunsAllQueuedJobsBeforeItEnds) {
  std::atomic<int> ran{0};
  {
    TextPool pool(2, 1000, 1000);
    for (int i = 0; i < 500; ++i) {
      while (!pool.Run(1, [&] { ++ran; }).ok()) {
      }
    }
  }
  EXPECT_EQ(ran.load(), 500);
}

TEST(TextPoolTest, RefusesBeyondItsLimitsOfJobsAndBytes) {
  std::binary_semaphore started{0};
  std::binary_semaphore release{0};
  TextPool pool(1, 3, 100);
  ASSERT_TRUE(pool.Run(10,
                       [&] {
                         started.release();
                         release.acquire();
                       })
                  .ok());
  started.acquire();  // the only thread is busy, the queue is empty
  // An empty queue accepts a job larger than the limit; then no bytes are left.
  EXPECT_TRUE(pool.Run(1000, [] {}).ok());
  EXPECT_EQ(pool.Run(1, [] {}).code(), absl::StatusCode::kUnavailable);
  release.release();
}

TEST(TextPoolTest, CountsWaitingJobs) {
  std::binary_semaphore started{0};
  std::binary_semaphore release{0};
  TextPool pool(1, 3, 100);
  ASSERT_TRUE(pool.Run(10,
                       [&] {
                         started.release();
                         release.acquire();
                       })
                  .ok());
  started.acquire();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.Run(1, [] {}).ok());
  EXPECT_EQ(pool.Run(1, [] {}).code(), absl::StatusCode::kUnavailable);
  release.release();
}

}  // namespace
}  // namespace quire
