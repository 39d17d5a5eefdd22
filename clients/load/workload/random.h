// Random: the random numbers of a workload. A seed gives the same numbers on every machine and with
// every standard library: the generator is mt19937_64, whose output the standard prescribes, and
// every distribution is our own.
//
// Not thread-safe. Cheap enough to construct for each request, so that a request's draws depend
// only on the seed and its place, never on the draws of other requests.
#pragma once

#include <cstdint>
#include <random>

#include "clients/load/values/settings.h"

namespace quire::load {

// Places whose draws are independent of each other. Changing a value changes the draws of a seed.
enum class Draw : uint64_t {
  kArrivals = 1,
  kLengths,
  kPrompt,
  kPrefix,
  kPrefixOrder,
  kTraceBlock,
  kConversation,
  kTurn,
  kTraits,
  kSampling,
};

class Random {
 public:
  // The numbers of one place: `index` is the request's, the group's, ...
  Random(uint64_t seed, Draw place, uint64_t index);

  uint64_t Bits() { return generator_(); }
  double Uniform();            // [0, 1), 53 bits
  uint64_t Below(uint64_t n);  // [0, n), without bias; n > 0
  double Normal();             // mean 0, deviation 1; inverse of the distribution function
  double Exponential();        // mean 1; inverse of the distribution function
  double Gamma(double shape);  // scale 1; Marsaglia and Tsang's method; shape > 0
  int32_t Length(const LengthSpec& spec, int32_t least);  // rounded, at least `least`

 private:
  std::mt19937_64 generator_;
};

// One well-mixed number from a seed and a place: SplitMix64's finaliser, twice.
uint64_t Mix(uint64_t seed, Draw place, uint64_t index);

// The value below which a standard normal variable lies with probability p, 0 < p < 1; Wichura's
// AS 241, relative error under 1e-15.
double NormalQuantile(double p);

}  // namespace quire::load
