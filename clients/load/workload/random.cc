// The distributions of Random.
#include "clients/load/workload/random.h"

#include <algorithm>
#include <cmath>

namespace quire::load {
namespace {

uint64_t SplitMix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Horner's scheme over coefficients from the highest power down.
template <size_t N>
double Polynomial(const double (&coefficients)[N], double x) {
  double sum = 0;
  for (const double c : coefficients) sum = sum * x + c;
  return sum;
}

}  // namespace

uint64_t Mix(uint64_t seed, Draw place, uint64_t index) {
  return SplitMix(SplitMix(seed ^ SplitMix(static_cast<uint64_t>(place))) ^ index);
}

Random::Random(uint64_t seed, Draw place, uint64_t index) : generator_(Mix(seed, place, index)) {}

double Random::Uniform() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }

uint64_t Random::Below(uint64_t n) {
  // Lemire's method: the high word of a product, redrawn where the low word would favour some.
  unsigned __int128 product = static_cast<unsigned __int128>(generator_()) * n;
  if (static_cast<uint64_t>(product) < n) {
    const uint64_t threshold = (0 - n) % n;
    while (static_cast<uint64_t>(product) < threshold) {
      product = static_cast<unsigned __int128>(generator_()) * n;
    }
  }
  return static_cast<uint64_t>(product >> 64);
}

// Half a step away from 0, where the quantile is infinite.
double Random::Normal() { return NormalQuantile(Uniform() + 0x1p-54); }

double Random::Exponential() { return -std::log1p(-Uniform()); }

double Random::Gamma(double shape) {
  // Below 1 the method needs a boost: G(a) = G(a + 1) * U^(1/a).
  if (shape < 1) {
    const double boost = std::pow(1 - Uniform(), 1 / shape);
    return boost * Gamma(shape + 1);
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = Normal();
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    const double u = 1 - Uniform();
    if (std::log(u) < 0.5 * x * x + d * (1 - v + std::log(v))) return d * v;
  }
}

int32_t Random::Length(const LengthSpec& spec, int32_t least) {
  double value = spec.a;
  if (spec.kind == LengthSpec::Kind::kUniform) {
    value = spec.a + static_cast<double>(Below(static_cast<uint64_t>(spec.b - spec.a) + 1));
  } else if (spec.kind == LengthSpec::Kind::kNormal) {
    value = spec.a + spec.b * Normal();
  }
  value = std::round(std::min(value, 1e9));
  return std::max(least, static_cast<int32_t>(value));
}

double NormalQuantile(double p) {
  static constexpr double kA[] = {2.5090809287301226727e3, 3.3430575583588128105e4,
                                  6.7265770927008700853e4, 4.5921953931549871457e4,
                                  1.3731693765509461125e4, 1.9715909503065514427e3,
                                  1.3314166789178437745e2, 3.3871328727963666080e0};
  static constexpr double kB[] = {5.2264952788528545610e3, 2.8729085735721942674e4,
                                  3.9307895800092710610e4, 2.1213794301586595867e4,
                                  5.3941960214247511077e3, 6.8718700749205790830e2,
                                  4.2313330701600911252e1, 1.0};
  static constexpr double kC[] = {7.74545014278341407640e-4, 2.27238449892691845833e-2,
                                  2.41780725177450611770e-1, 1.27045825245236838258e0,
                                  3.64784832476320460504e0,  5.76949722146069140550e0,
                                  4.63033784615654529590e0,  1.42343711074968357734e0};
  static constexpr double kD[] = {1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                  1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                  6.89767334985100004550e-1, 1.67638483018380384940e0,
                                  2.05319162663775882187e0,  1.0};
  static constexpr double kE[] = {2.01033439929228813265e-7, 2.71155556874348757815e-5,
                                  1.24266094738807843860e-3, 2.65321895265761230930e-2,
                                  2.96560571828504891230e-1, 1.78482653991729133580e0,
                                  5.46378491116411436990e0,  6.65790464350110377720e0};
  static constexpr double kF[] = {2.04426310338993978564e-15, 1.42151175831644588870e-7,
                                  1.84631831751005468180e-5,  7.86869131145613259100e-4,
                                  1.48753612908506148525e-2,  1.36929880922735805310e-1,
                                  5.99832206555887937690e-1,  1.0};
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kA, r) / Polynomial(kB, r);
  }
  const double r = std::sqrt(-std::log(q < 0 ? p : 1 - p));
  const double tail = r <= 5 ? Polynomial(kC, r - 1.6) / Polynomial(kD, r - 1.6)
                             : Polynomial(kE, r - 5) / Polynomial(kF, r - 5);
  return q < 0 ? -tail : tail;
}

}  // namespace quire::load
