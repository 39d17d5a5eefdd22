// MeasuredRate: units per second, as measured again and again. The later and the bigger a
// measurement the more it counts, so that small ones, which are mostly overhead, say little. What
// was measured long ago is believed less and less, and instead what was measured first: a bad phase
// in which nobody dares to try again is forgotten by itself.
#pragma once

#include <cmath>
#include <cstdint>

namespace quire {

class MeasuredRate {
 public:
  // Requires positive values.
  void Add(double units, int64_t ns, int64_t now_ns) {
    constexpr double kRemember = 0.75;
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
