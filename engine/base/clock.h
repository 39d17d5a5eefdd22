// The steady clock in nanoseconds: the only clock that durations and deadlines use.
#pragma once

#include <chrono>
#include <cstdint>

namespace quire {

inline int64_t SteadyNowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace quire
