// LogRateLimiter: at most one log line per second for an event that clients can cause at any rate.
#pragma once

#include <atomic>
#include <cstdint>

namespace quire {

// Any thread.
class LogRateLimiter {
 public:
  // Counts one event. Returns 0 if no line is due; otherwise the number of events since the last
  // line, including this one.
  int64_t Count(int64_t now_ns);

 private:
  std::atomic<int64_t> unlogged_{0};
  std::atomic<int64_t> next_ns_{0};
};

}  // namespace quire
