// LatencyHistogram: counts of durations in buckets whose width is a fixed share of their value, so
// that millions of gaps take constant memory and percentiles keep a known relative error.
#pragma once

#include <cstdint>
#include <vector>

namespace quire::load {

class LatencyHistogram {
 public:
  // Durations from 1 ns to 2^43 ns (2.4 hours), each kept to within 1 part in 2048; larger ones
  // count as the largest, shorter ones and negative ones as zero. Takes 344 KiB.
  LatencyHistogram();

  void Add(double seconds, int64_t times = 1);
  void Merge(const LatencyHistogram& other);

  int64_t count() const { return count_; }
  double mean() const { return mean_; }  // exact; 0 when empty
  double min() const { return min_; }    // exact
  double max() const { return max_; }    // exact
  double stddev() const;                 // of the population, as numpy.std
  // Linear interpolation between order statistics, as numpy.percentile; percent in [0, 100]. 0 when
  // empty.
  double Percentile(double percent) const;

 private:
  double OrderStatistic(int64_t rank) const;  // the rank-th smallest, from 0

  std::vector<uint64_t> buckets_;
  int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;  // sum of squared distances from the mean
  double min_ = 0, max_ = 0;
};

}  // namespace quire::load
