// History: the figures of the last ten minutes, one record a second. For the status page and
// Control.GetMemory; Prometheus has its own. All memory is taken at the start.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "server/metrics/latency_sketch.h"

namespace quire {

// One second: rates over it, and states at its end.
struct HistorySecond {
  int64_t number = 0;      // consecutive from 1; 0: there is none
  double end_seconds = 0;  // since 1970
  double prompt_tokens_per_second = 0;
  double generated_tokens_per_second = 0;
  int32_t running = 0, waiting = 0, restoring = 0;
  Quantiles first_token;      // of the last kLatencySeconds
  Quantiles inter_token;      // likewise
  int32_t used_blocks = 0;    // by requests and copies
  int32_t cached_blocks = 0;  // KV of sessions and prompts that no request uses now
  int32_t used_pages = 0;
  std::array<int32_t, 8> sessions{};  // by SessionState
  double stored_bytes_per_second = 0, loaded_bytes_per_second = 0;
  double steps_per_second = 0;
  double step_seconds = -1;  // mean duration of a step in the worker; -1: none retired
  double graph_ratio = 0;    // steps replayed from a capture / steps
  double padded_ratio = 0;   // padding rows / rows of the replayed steps
};

// A column of the history under the name that JSON has.
struct HistorySeries {
  const char* name;
  double (*value)(const HistorySecond&);  // < 0 where there is none
};
std::span<const HistorySeries> AllHistorySeries();

class History {
 public:
  static constexpr size_t kSeconds = 600;
  // Latencies of so many seconds make one quantile, so that a slow server has some to count.
  static constexpr size_t kLatencySeconds = 5;

  History() { ring_.reserve(kSeconds); }

  // Adds the second that ends now; the first call, and one that comes too early, adds none. Call it
  // about once a second. One thread.
  void Add(const EngineStats& stats, const LatencySketch& first_token,
           const LatencySketch& inter_token, int64_t now_ns);

  // The oldest first. Any thread.
  std::vector<HistorySecond> All() const;
  HistorySecond Last() const;  // Any thread.

 private:
  // Counts of the last seconds of one sketch.
  struct Window {
    LatencySketch::Counts total{};  // of the sketch, at the last call
    std::array<LatencySketch::Counts, kLatencySeconds> seconds{};
    Quantiles Add(const LatencySketch& sketch, size_t slot);
  };

  void AddRates(const EngineStats& stats, double seconds, HistorySecond* second) const;

  // Of the calling thread.
  int64_t last_ns_ = 0;  // 0: no call yet
  EngineStats last_stats_;
  Window first_token_, inter_token_;
  int64_t number_ = 0;

  mutable std::mutex mutex_;
  std::vector<HistorySecond> ring_;  // under mutex_; record n is at (n - 1) % kSeconds
};

}  // namespace quire
