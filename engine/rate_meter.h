// RateMeter: events per second of late, as a mean whose weight halves every few seconds. The caller
// gives the time. One thread.
#pragma once

#include <cmath>
#include <cstdint>

namespace quire {

class RateMeter {
 public:
  static constexpr double kMeanSeconds = 10;  // that an event counts
  static constexpr double kMinCount = 3;      // events without which no rate is known

  void Add(double count, int64_t now_ns) {
    if (began_ns_ == 0) began_ns_ = now_ns;
    Decay(now_ns);
    recent_ += count;
    total_ += count;
    last_ns_ = now_ns;
  }
  // 0: not known. No events for long means a low rate, not an unknown one.
  double PerSecond(int64_t now_ns) {
    Decay(now_ns);
    const double age = static_cast<double>(now_ns - began_ns_) * 1e-9;
    if (began_ns_ == 0 || total_ < kMinCount || age <= 0) return 0;
    return recent_ / (kMeanSeconds * (1 - std::exp(-age / kMeanSeconds)));
  }

  // The same, but 0 too when the last event is older than the mean time: how long the next one
  // takes is not known then.
  double FreshPerSecond(int64_t now_ns) {
    const double gap = static_cast<double>(now_ns - last_ns_) * 1e-9;
    return gap > kMeanSeconds ? 0 : PerSecond(now_ns);
  }

 private:
  void Decay(int64_t now_ns) {
    if (now_ns <= at_ns_) return;
    recent_ *= std::exp(-static_cast<double>(now_ns - at_ns_) * 1e-9 / kMeanSeconds);
    at_ns_ = now_ns;
  }

  int64_t began_ns_ = 0;
  int64_t last_ns_ = 0;
  int64_t at_ns_ = 0;
  double recent_ = 0;
  double total_ = 0;
};

}  // namespace quire
