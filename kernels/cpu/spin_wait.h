// SpinThenWait, SpinThenSleep: how threads of the CPU backend wait for each other: a short spin,
// then sleep in the kernel.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "kernels/cpu_relax.h"
#include "kernels/futex.h"

namespace quire::cpu {

// Long enough to bridge the gap between two operations of a small model's step. Short enough that
// an idle server costs nothing and another thread waits for the core less than a scheduler tick.
inline constexpr std::chrono::microseconds kSpin{20};

// True once `value` differs from `old`; false after a while.
inline bool SpinUntilChanged(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (value.load(std::memory_order_acquire) != old) return true;
      CpuRelax();
    }
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

// Returns once `value` differs from `old`. The thread that changes `value` must call notify_all.
inline void SpinThenWait(const std::atomic<uint32_t>& value, uint32_t old, bool may_spin) {
  if (may_spin && SpinUntilChanged(value, old)) return;
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

// The same for a value that processes share. The one that changes it must call FutexWake.
inline void SpinThenSleep(const std::atomic<uint32_t>& value, uint32_t old, bool may_spin) {
  if (may_spin && SpinUntilChanged(value, old)) return;
  while (value.load(std::memory_order_acquire) == old) FutexWait(value, old);
}

}  // namespace quire::cpu
