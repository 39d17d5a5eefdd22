// LoadProgress: a log line per second while weights are read, none for loads under a second.
#pragma once

#include <atomic>
#include <cstdint>

namespace quire {

// Any thread.
class LoadProgress {
 public:
  // `start_ns` by the steady clock; the first line is due one second later.
  LoadProgress(int64_t total_bytes, int64_t start_ns)
      : total_bytes_(total_bytes), start_ns_(start_ns), next_ns_(start_ns + kIntervalNs) {}

  // Counts bytes that were read, and logs if a line is due.
  void Add(int64_t bytes, int64_t now_ns);

 private:
  static constexpr int64_t kIntervalNs = 1'000'000'000;

  const int64_t total_bytes_;
  const int64_t start_ns_;
  std::atomic<int64_t> read_bytes_{0};
  std::atomic<int64_t> next_ns_;
};

}  // namespace quire
