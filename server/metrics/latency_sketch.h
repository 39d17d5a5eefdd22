// LatencySketch: counts durations in buckets of about 9 % width, from which any quantile of any
// interval can be read: of what was counted between two reads. Any thread; no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace quire {

class LatencySketch {
 public:
  // Eight buckets for each factor of two, from 15 µs to more than an hour.
  static constexpr int kPerOctave = 8;
  static constexpr int kLowestExponent = -16;
  static constexpr size_t kBuckets = 28 * kPerOctave;
  using Counts = std::array<uint32_t, kBuckets>;  // modulo 2^32

  void Observe(double seconds);
  // All counts so far.
  Counts Read() const;

 private:
  std::array<std::atomic<uint32_t>, kBuckets> counts_{};
};

// The counts of `later` that `earlier` does not have.
LatencySketch::Counts Difference(const LatencySketch::Counts& later,
                                 const LatencySketch::Counts& earlier);

// In seconds; each is within 5 % of a duration that was counted, and -1 if none was.
struct Quantiles {
  double p50 = -1, p90 = -1, p99 = -1;
};
Quantiles QuantilesOf(const LatencySketch::Counts& counts);

}  // namespace quire
