// Buckets by the logarithm of a duration.
#include "server/metrics/latency_sketch.h"

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

// The middle of a bucket on the logarithmic scale.
double Middle(size_t bucket) {
  const double eighths = static_cast<double>(bucket) + .5;
  return std::exp2(LatencySketch::kLowestExponent + eighths / LatencySketch::kPerOctave);
}

// The smallest duration that at least `share` of the `total` ones do not exceed.
double At(const LatencySketch::Counts& counts, uint64_t total, double share) {
  const auto rank = static_cast<uint64_t>(std::ceil(share * static_cast<double>(total)));
  uint64_t below = 0;
  for (size_t bucket = 0; bucket < counts.size(); ++bucket) {
    below += counts[bucket];
    if (below >= rank) return Middle(bucket);
  }
  return Middle(counts.size() - 1);
}

}  // namespace

void LatencySketch::Observe(double seconds) {
  double bucket = 0;
  if (seconds > 0) bucket = (std::log2(seconds) - kLowestExponent) * kPerOctave;
  const double last = static_cast<double>(kBuckets - 1);
  const auto index = static_cast<size_t>(std::clamp(bucket, 0.0, last));
  counts_[index].fetch_add(1, std::memory_order_relaxed);
}

LatencySketch::Counts LatencySketch::Read() const {
  Counts counts;
  for (size_t i = 0; i < kBuckets; ++i) counts[i] = counts_[i].load(std::memory_order_relaxed);
  return counts;
}

LatencySketch::Counts Difference(const LatencySketch::Counts& later,
                                 const LatencySketch::Counts& earlier) {
  LatencySketch::Counts counts;
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = later[i] - earlier[i];
  return counts;
}

Quantiles QuantilesOf(const LatencySketch::Counts& counts) {
  uint64_t total = 0;
  for (const uint32_t count : counts) total += count;
  if (total == 0) return {};
  return {At(counts, total, .5), At(counts, total, .9), At(counts, total, .99)};
}

}  // namespace quire
