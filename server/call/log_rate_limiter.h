// LogPace: one log line a second for something that clients can make happen as often as they like.
#pragma once

#include <atomic>
#include <cstdint>

namespace quire {

// Any thread.
class LogPace {
 public:
  // Counts one occurrence. Not 0 when a line is due: the occurrences since the last line, this one
  // included.
  int64_t Count(int64_t now_ns);

 private:
  std::atomic<int64_t> unlogged_{0};
  std::atomic<int64_t> next_ns_{0};
};

}  // namespace quire
