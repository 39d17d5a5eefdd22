// JobRoom: how many lines of jobs may be with the engine now: as many as the requests leave room
// for, and no more, so that lines wait on the disk and not in the engine's queue.
#pragma once

#include <algorithm>
#include <cstdint>

namespace quire {

struct JobRoom {
  int32_t rows = 0;     // of the engine
  int32_t running = 0;  // requests and lines
  int32_t waiting = 0;  // likewise
  int32_t lines = 0;    // with the engine, or on the way there

  // Lines that may be started now.
  int32_t ToStart() const {
    if (waiting > 0) return 0;
    const int32_t requests = std::max(0, running - lines);
    // Free rows, so that most requests find one without a preemption; with few rows one, and of a
    // single one none.
    const int32_t kept = std::min(std::max(1, rows / 8), rows - 1);
    return std::clamp(rows - kept - requests - lines, 0, kAtOnce);
  }

  // Between two looks at the engine.
  static constexpr int32_t kAtOnce = 16;
};

}  // namespace quire
