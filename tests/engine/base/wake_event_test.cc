// WakeEvent loses no notification and wakes at its deadline.
#include "engine/base/wake_event.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "engine/base/clock.h"
#include "gtest/gtest.h"
#include "kernels/futex.h"

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

// Memory that a process shares with the processes it forks.
std::shared_ptr<std::atomic<uint32_t>> SharedWord() {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return {static_cast<std::atomic<uint32_t>*>(page), [](void* p) { munmap(p, 4096); }};
}

TEST(WakeEventTest, AnotherProcessNotifies) {
  const auto word = SharedWord();
  const auto turns = SharedWord();
  constexpr uint32_t kTurns = 1000;
  const pid_t child = fork();
  if (child == 0) {
    for (uint32_t i = 0; i < kTurns; ++i) {
      while (turns->load() != 2 * i) FutexWait(*turns, turns->load(), SteadyNowNs() + 1'000'000);
      turns->store(2 * i + 1);
      WakeEvent::Notify(*word);
    }
    _exit(0);
  }
  WakeEvent wake;
  wake.Share(word);
  for (uint32_t i = 0; i < kTurns; ++i) {
    while (turns->load() != 2 * i + 1) wake.Wait(std::numeric_limits<int64_t>::max());
    turns->store(2 * i + 2);
    FutexWake(*turns);
  }
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(WakeEventTest, ANotifierThatDiedHalfwayCostsLatencyOnly) {
  const auto word = SharedWord();
  WakeEvent wake;
  wake.Share(word);
  std::thread sleeper([&] { wake.Wait(std::numeric_limits<int64_t>::max()); });
  while (word->load() != 2) std::this_thread::yield();  // it sleeps
  word->store(1);                                       // the exchange without the wake
  sleeper.join();
}

}  // namespace
}  // namespace quire
