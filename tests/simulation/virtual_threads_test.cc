// Threads, locks, conditions and clocks of the C++ library under a schedule: the same seed gives
// the same order, every order comes up, time costs no time, and waits end as they should.
#include "tests/simulation/virtual_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/wake_event.h"

namespace quire {
namespace {

using std::chrono::steady_clock;

constexpr VirtualThreads::Chances kOften{.switch_one_in = 2, .early_wake_one_in = 4};

// Three threads write letters under one lock.
std::string Order(uint64_t seed) {
  VirtualThreads schedule(seed, kOften);
  std::mutex mutex;
  std::string order;
  std::vector<std::thread> threads;
  for (const char letter : {'a', 'b', 'c'}) {
    threads.emplace_back([&, letter] {
      for (int i = 0; i < 3; ++i) {
        const std::lock_guard lock(mutex);
        order += letter;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return order;
}

TEST(VirtualThreadsTest, TheSeedDecidesTheOrder) {
  std::set<std::string> orders;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const std::string order = Order(seed);
    EXPECT_EQ(order.size(), 9u);
    EXPECT_EQ(order, Order(seed));
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 50u);
}

TEST(VirtualThreadsTest, HoursOfWaitingCostNoTime) {
  VirtualThreads schedule(1, kOften);
  const auto begin = steady_clock::now();
  std::thread sleeper([] { std::this_thread::sleep_for(std::chrono::hours(5)); });
  std::mutex mutex;
  std::condition_variable never;
  {
    std::unique_lock lock(mutex);
    EXPECT_FALSE(never.wait_for(lock, std::chrono::hours(3), [] { return false; }));
  }
  EXPECT_GE(steady_clock::now() - begin, std::chrono::hours(3));
  sleeper.join();
  EXPECT_GE(steady_clock::now() - begin, std::chrono::hours(5));
  EXPECT_LT(steady_clock::now() - begin, std::chrono::hours(6));
}

TEST(VirtualThreadsTest, WakesThoseWhoWait) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    VirtualThreads schedule(seed, kOften);
    WakeEvent wake;
    std::atomic<int> value{0};
    std::promise<int> promise;
    std::thread other([&] {
      while (value.load() == 0) wake.Wait(VirtualThreads::kNever);
      promise.set_value(value.load());
    });
    value.store(7);
    wake.Notify();
    EXPECT_EQ(promise.get_future().get(), 7);
    other.join();
  }
}

TEST(VirtualThreadsTest, FindsALostUpdate) {
  // Two threads that read, then write: correct in most orders, wrong in some.
  std::set<int> results;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    VirtualThreads schedule(seed, kOften);
    std::mutex mutex;
    int shared = 0;
    const auto add = [&] {
      int read = 0;
      {
        const std::lock_guard lock(mutex);
        read = shared;
      }
      const std::lock_guard lock(mutex);
      shared = read + 1;
    };
    std::thread first(add), second(add);
    first.join();
    second.join();
    results.insert(shared);
  }
  EXPECT_EQ(results, (std::set<int>{1, 2}));
}

TEST(VirtualThreadsTest, ClocksJump) {
  VirtualThreads schedule(1, {});
  const auto steady = steady_clock::now();
  const auto wall = std::chrono::system_clock::now();
  schedule.JumpWallClock(-3600'000'000'000);
  EXPECT_LT(std::chrono::system_clock::now(), wall);
  EXPECT_LT(steady_clock::now() - steady, std::chrono::seconds(1));
  schedule.JumpSteadyClock(60'000'000'000);
  EXPECT_GE(steady_clock::now() - steady, std::chrono::seconds(60));
}

TEST(VirtualThreadsDeathTest, NamesADeadlock) {
  EXPECT_DEATH(
      {
        VirtualThreads schedule(1, {});
        std::mutex mutex;
        mutex.lock();
        std::thread other([&] { mutex.lock(); });
        other.join();
      },
      "every thread waits");
}

}  // namespace
}  // namespace quire
