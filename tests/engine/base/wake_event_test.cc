// WakeEvent loses no notification and wakes at its deadline.
#include "engine/base/wake_event.h"

#include <atomic>
#include <thread>

#include "engine/base/clock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(WakeEventTest, NotificationBeforeWaitIsKept) {
  WakeEvent wake;
  wake.Notify();
  wake.Wait(std::numeric_limits<int64_t>::max());  // hangs if the notification was lost
}

TEST(WakeEventTest, ReturnsAtTheDeadlineWithoutNotification) {
  WakeEvent wake;
  const int64_t deadline = SteadyNowNs() + 5'000'000;
  wake.Wait(deadline);
  EXPECT_GE(SteadyNowNs(), deadline);
}

TEST(WakeEventTest, TwoThreadsHandOverAHundredThousandTimes) {
  WakeEvent ping, pong;
  std::atomic<int> turns{0};
  constexpr int kTurns = 100'000;
  std::thread other([&] {
    for (int i = 0; i < kTurns; ++i) {
      while (turns.load() != 2 * i + 1) ping.Wait(std::numeric_limits<int64_t>::max());
      turns.store(2 * i + 2);
      pong.Notify();
    }
  });
  for (int i = 0; i < kTurns; ++i) {
    turns.store(2 * i + 1);
    ping.Notify();
    while (turns.load() != 2 * i + 2) pong.Wait(std::numeric_limits<int64_t>::max());
  }
  other.join();
  EXPECT_EQ(turns.load(), 2 * kTurns);
}

}  // namespace
}  // namespace quire
