// ClockProfiler: times the parts of a step by the steady clock: on the CPU an operation has ended
// when its call returns.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>

#include "kernels/step_profiler.h"

namespace quire::cpu {

class ClockProfiler final : public StepProfiler {
 public:
  void BeginRange(const char*, int64_t) override {}
  void EndRange() override {}
  void Record(bool) override {}

 protected:
  void Stamp(int index) override { stamps_[static_cast<size_t>(index)] = Now(); }
  void StampEnd(bool keep_last) override {
    const int64_t last = std::exchange(last_end_, Now());
    if (keep_last) kept_end_ = last;
  }
  int64_t NsBetween(int from, int to) override {
    if (from < 0 && kept_end_ == 0) return 0;  // no step came before
    const int64_t begin = from < 0 ? kept_end_ : stamps_[static_cast<size_t>(from)];
    return stamps_[static_cast<size_t>(to)] - begin;
  }

 private:
  static int64_t Now() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  std::array<int64_t, kMaxParts + 1> stamps_{};
  int64_t last_end_ = 0;
  int64_t kept_end_ = 0;
};

}  // namespace quire::cpu
