// SpinThenWait: the one way CPU threads wait for each other: a short spin, then sleep in the
// kernel.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "kernels/cpu_relax.h"

namespace quire::cpu {

// Long enough to bridge two operations of a step of a small model, short enough that a sleeping
// server costs nothing and a neighbour that needs the core waits less than a scheduler tick.
inline constexpr std::chrono::microseconds kSpin{20};

// Returns once `value` differs from `old`. Whoever changes it must call notify_all.
inline void SpinThenWait(const std::atomic<uint32_t>& value, uint32_t old, bool may_spin) {
  if (may_spin) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 16; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        CpuRelax();
      }
    } while (std::chrono::steady_clock::now() < until);
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace quire::cpu
