// Tally: counts of a run's streams, cheap to add to and read once a second.
//
// Thread-safe. Each thread has a shard with a mutex of its own, so that counting a frame waits
// only for the reader of the totals.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "clients/load/values/latency_histogram.h"
#include "clients/load/values/run_record.h"

namespace quire::load {

class Tally {
 public:
  struct Totals {
    int64_t sent = 0;
    int64_t ended = 0;   // with any outcome
    int64_t failed = 0;  // those that ended kFailed
    int64_t tokens = 0;
  };

  void Sent();
  // A frame that was a stream's first with tokens.
  void FirstFrame(int32_t tokens, double ttft_seconds);
  // A later frame; its gap counts if `measured`.
  void NextFrame(int32_t tokens, double gap_seconds, bool measured);
  void Ended(Outcome outcome);

  // Warm-up included.
  Totals Read() const;
  int64_t in_flight() const;
  // The times to first token since the last call, in no order.
  std::vector<double> TakeTtfts();
  // The gaps of all measured streams, for the record.
  void AddGapsTo(LatencyHistogram* gaps, LatencyHistogram* gaps_per_token) const;

 private:
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    int64_t tokens = 0;         // guarded by mutex, as the rest
    std::vector<double> ttfts;  // since the last TakeTtfts
    LatencyHistogram gaps;
    LatencyHistogram gaps_per_token;
  };
  Shard& Mine();

  std::array<Shard, 16> shards_;
  std::atomic<int64_t> sent_{0}, ended_{0}, failed_{0};
};

}  // namespace quire::load
