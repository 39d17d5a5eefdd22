// When a watchdog bites.
#include "server/watch/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>

namespace quire {
namespace {

TEST(WatchdogTest, BitesOnceWhenTheTimeIsOver) {
  std::binary_semaphore bitten{0};
  std::atomic<int> bites{0};
  {
    Watchdog watchdog([&] {
      ++bites;
      bitten.release();
    });
    watchdog.Arm(0.01);
    bitten.acquire();
    watchdog.Disarm();
  }
  EXPECT_EQ(bites, 1);
}

TEST(WatchdogTest, DoesNotBiteIfItIsDisarmedInTime) {
  std::atomic<int> bites{0};
  {
    Watchdog watchdog([&] { ++bites; });
    watchdog.Arm(3600);
    watchdog.Disarm();
    watchdog.Disarm();
  }
  {
    const Watchdog never_armed([&] { ++bites; });
  }
  EXPECT_EQ(bites, 0);
}

}  // namespace
}  // namespace quire
