// MeasuredRate: units per second from repeated measurements. Later and larger measurements weigh
// more, because small ones are mostly overhead. The weight of old measurements fades in favour of
// the very first one: after a slow phase in which no more attempts were made, the rate recovers by
// itself and attempts begin again.
#pragma once

#include <cmath>
#include <cstdint>

namespace quire {

class MeasuredRate {
 public:
  // Adds a measurement: `units` took `ns`. Requires positive values.
  void Add(double units, int64_t ns, int64_t now_ns) {
    constexpr double kRemember = 0.75;  // what a measurement still weighs after the next one
    units_ = kRemember * units_ + units;
    ns_ = kRemember * ns_ + static_cast<double>(ns);
    if (first_ == 0) first_ = units * 1e9 / static_cast<double>(ns);
    measured_ns_ = now_ns;
  }

  // 0: not measured yet.
  double PerSecond(int64_t now_ns) const {
    constexpr double kHalfLifeNs = 10e9;
    if (first_ == 0) return 0;
    const double belief = std::exp2(-static_cast<double>(now_ns - measured_ns_) / kHalfLifeNs);
    return belief * units_ * 1e9 / ns_ + (1 - belief) * first_;
  }

 private:
  double units_ = 0;
  double ns_ = 0;
  double first_ = 0;  // per second
  int64_t measured_ns_ = 0;
};

}  // namespace quire
