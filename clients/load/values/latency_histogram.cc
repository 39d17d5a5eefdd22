// A bucket per 1/1024 of an octave: the middle of a bucket is then within 1/2048 of all it holds.
#include "clients/load/values/latency_histogram.h"

#include <algorithm>
#include <cmath>

namespace quire::load {
namespace {

constexpr int kStepsPerOctave = 1024;
constexpr int kOctaves = 43;                                 // 1 ns up to 2^43 ns
constexpr double kLargest = 8796093022207.0 * 1e-9;          // just below 2^43 ns
constexpr int kNumBuckets = 1 + kOctaves * kStepsPerOctave;  // bucket 0 is zero

int BucketOf(double seconds) {
  const double ns = seconds * 1e9;
  if (!(ns >= 1)) return 0;
  int exponent = 0;
  const double fraction = std::frexp(ns, &exponent);  // [0.5, 1), ns = fraction * 2^exponent
  const int octave = exponent - 1;
  if (octave >= kOctaves) return kNumBuckets - 1;
  return 1 + octave * kStepsPerOctave + static_cast<int>((fraction * 2 - 1) * kStepsPerOctave);
}

double MiddleOf(int bucket) {
  if (bucket == 0) return 0;
  const int octave = (bucket - 1) / kStepsPerOctave, step = (bucket - 1) % kStepsPerOctave;
  return std::ldexp(1 + (step + 0.5) / kStepsPerOctave, octave) * 1e-9;
}

}  // namespace

LatencyHistogram::LatencyHistogram() : buckets_(kNumBuckets) {}

void LatencyHistogram::Add(double seconds, int64_t times) {
  if (times <= 0) return;
  seconds = seconds > 0 ? std::min(seconds, kLargest) : 0;  // also of a NaN
  buckets_[BucketOf(seconds)] += times;
  min_ = count_ == 0 ? seconds : std::min(min_, seconds);
  max_ = count_ == 0 ? seconds : std::max(max_, seconds);
  // Running mean and squares (Chan, Golub, LeVeque): a sum of squares would lose the spread of
  // values that are nearly equal.
  const double total = static_cast<double>(count_ + times), distance = seconds - mean_;
  squares_ += distance * distance * static_cast<double>(count_) * times / total;
  mean_ += distance * times / total;
  count_ += times;
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  if (other.count_ == 0) return;
  for (int i = 0; i < kNumBuckets; ++i) buckets_[i] += other.buckets_[i];
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = count_ == 0 ? other.max_ : std::max(max_, other.max_);
  const double mine = static_cast<double>(count_), theirs = static_cast<double>(other.count_);
  const double distance = other.mean_ - mean_;
  squares_ += other.squares_ + distance * distance * mine * theirs / (mine + theirs);
  mean_ += distance * theirs / (mine + theirs);
  count_ += other.count_;
}

double LatencyHistogram::stddev() const { return count_ == 0 ? 0 : std::sqrt(squares_ / count_); }

double LatencyHistogram::OrderStatistic(int64_t rank) const {
  if (rank <= 0) return min_;
  if (rank >= count_ - 1) return max_;
  uint64_t seen = 0;
  for (int i = 0; i < kNumBuckets; ++i) {
    seen += buckets_[i];
    if (seen > static_cast<uint64_t>(rank)) return std::clamp(MiddleOf(i), min_, max_);
  }
  return max_;
}

double LatencyHistogram::Percentile(double percent) const {
  if (count_ == 0) return 0;
  const double position = std::clamp(percent, 0.0, 100.0) / 100 * static_cast<double>(count_ - 1);
  const auto rank = static_cast<int64_t>(position);
  const double low = OrderStatistic(rank), share = position - static_cast<double>(rank);
  return share > 0 ? low + share * (OrderStatistic(rank + 1) - low) : low;
}

}  // namespace quire::load
