// Agenda: what happens in a simulated world, and when. Any thread of the schedule adds; the world's
// own thread runs one action after the other, at its time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "tests/simulation/virtual_threads.h"

namespace quire {

// Random choices of a program.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(int64_t n) { return Between(1, n) == 1; }
  template <typename Container>
  auto Of(const Container& choices) {
    return *(std::begin(choices) + Between(0, static_cast<int64_t>(std::size(choices)) - 1));
  }

 private:
  std::mt19937_64 random_;
};

class Agenda {
 public:
  using Action = std::function<void()>;

  explicit Agenda(VirtualThreads& threads) : threads_(threads) {}

  int64_t now_ns() const { return threads_.now_ns(); }
  void At(int64_t time_ns, Action action) {
    actions_.emplace(time_ns, std::move(action));
    threads_.Wake(this);
  }
  void In(int64_t ns, Action action) { At(now_ns() + ns, std::move(action)); }
  // Runs what is due until `done` holds. False: it does not after `most` actions, or when nothing
  // is planned and the threads alone did nothing about it for kAloneNs.
  template <typename Done>
  bool RunUntil(Done done, int64_t most) {
    while (!done()) {
      const auto first = actions_.begin();
      if (first == actions_.end()) {
        const int64_t until_ns = now_ns() + kAloneNs;
        while (actions_.empty() && now_ns() < until_ns && !done()) {
          threads_.WaitAt(this, until_ns);
        }
        if (actions_.empty() && !done()) return false;
        continue;
      }
      if (first->first > now_ns()) {
        threads_.WaitAt(this, first->first);
        continue;
      }
      if (most-- == 0) return false;
      const Action action = std::move(first->second);
      actions_.erase(first);
      ++num_actions_;
      action();
    }
    return true;
  }
  int64_t num_actions() const { return num_actions_; }

 private:
  static constexpr int64_t kAloneNs = 3'600'000'000'000;

  VirtualThreads& threads_;
  std::multimap<int64_t, Action> actions_;
  int64_t num_actions_ = 0;
};

}  // namespace quire
