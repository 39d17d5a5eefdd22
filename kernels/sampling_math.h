// The arithmetic of the sampler, which every backend reproduces to the bit: IEEE single-precision
// sums, products and fused multiply-adds in the order written here. So one (seed, position) gives
// one token on every device and any number of ranks. sampling.h defines the draw.
#pragma once

#include <cstdint>

// Always inlined: code for several instruction sets includes this header, and the linker must not
// give one of them another's copy. Device code defines both macros before the include.
#ifndef QUIRE_EXACT
#define QUIRE_EXACT [[gnu::always_inline]] inline
#define QUIRE_WIDE_PRODUCT(a, b) (uint64_t{a} * uint64_t{b})  // of 32-bit words
#endif

namespace quire {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
struct Philox4 {
  uint32_t word[4];
};

QUIRE_EXACT Philox4 Philox4x32(uint64_t key, Philox4 counter) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  Philox4 c = counter;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = QUIRE_WIDE_PRODUCT(0xD2511F53u, c.word[0]);
    const uint64_t b = QUIRE_WIDE_PRODUCT(0xCD9E8D57u, c.word[2]);
    c = Philox4{{static_cast<uint32_t>(b >> 32) ^ c.word[1] ^ k0, static_cast<uint32_t>(b),
                 static_cast<uint32_t>(a >> 32) ^ c.word[3] ^ k1, static_cast<uint32_t>(a)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// e^(x - n ln 2) for x within ln 2 / 2 of n ln 2: with r that difference, 1 + r + r^2 Q(r) with a
// minimax Q (relative error 3e-9 before rounding).
QUIRE_EXACT float ExactExpOf(float x, float n) {
  float r = __builtin_fmaf(n, -0.693147182f, x);
  r = __builtin_fmaf(n, 1.90465421e-9f, r);
  float q = __builtin_fmaf(r, 0.0013814535923302174f, 0.00836874544620514f);
  q = __builtin_fmaf(q, r, 0.04166839271783829f);
  q = __builtin_fmaf(q, r, 0.1666652113199234f);
  q = __builtin_fmaf(q, r, 0.4999999403953552f);
  return __builtin_fmaf(r * r, q, r) + 1.0f;
}

// 1.5 * 2^23: adding it leaves the nearest integer in the bits.
inline constexpr float kExpRound = 12582912.0f;

// e^x to 2 ulp for x in [-87, 88.37]; 0 below, e^88.37 above.
QUIRE_EXACT float ExactExp(float x) {
  if (x < -87.0f) return 0.0f;
  if (x > 88.37f) x = 88.37f;
  const float t = __builtin_fmaf(x, 1.44269502f, kExpRound);
  const float e = ExactExpOf(x, t - kExpRound);
  return e * __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, t) + 127u) << 23);
}

// e ln 2 + ln(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1].
QUIRE_EXACT float ExactLogOf(float e, float f) {
  float p = __builtin_fmaf(f, 0.0674666315317154f, -0.11675640195608139f);
  p = __builtin_fmaf(p, f, 0.11888144910335541f);
  p = __builtin_fmaf(p, f, -0.1240558922290802f);
  p = __builtin_fmaf(p, f, 0.14219555258750916f);
  p = __builtin_fmaf(p, f, -0.1666799634695053f);
  p = __builtin_fmaf(p, f, 0.2000211924314499f);
  p = __builtin_fmaf(p, f, -0.25000008940696716f);
  p = __builtin_fmaf(p, f, 0.3333331346511841f);
  p = __builtin_fmaf(p, f, -0.5f);
  p = __builtin_fmaf(f * f, p, f);
  return __builtin_fmaf(e, 0.693147182f, __builtin_fmaf(e, -1.90465421e-9f, p));
}

// x = 2^e (1 + f) for a positive normal x, with f in the range of ExactLogOf.
struct LogArgument {
  float e, f;
};

QUIRE_EXACT LogArgument SplitLog(float x) {
  constexpr uint32_t kSqrtHalf = 0x3f3504f3u;
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const int32_t e = static_cast<int32_t>(bits - kSqrtHalf) >> 23;
  const float m = __builtin_bit_cast(float, bits - (static_cast<uint32_t>(e) << 23));
  return LogArgument{static_cast<float>(e), m - 1.0f};
}

// Natural logarithm of a positive normal number.
QUIRE_EXACT float ExactLog(float x) {
  const LogArgument a = SplitLog(x);
  return ExactLogOf(a.e, a.f);
}

// An exponential variate from 32 random bits: -ln(1 - v), v = (x + 1/2) / 2^32, with the smaller of
// v and 1 - v at full precision. Values lie in [2^-33, 22.9].
QUIRE_EXACT float ExactExponential(uint32_t x) {
  const bool low = x < 0x80000000u;
  const int32_t small = static_cast<int32_t>(low ? x : ~x);
  const float v = (static_cast<float>(small) + 0.5f) * 0x1p-32f;
  const LogArgument of_v = SplitLog(v);
  const bool near_one = v < 0.292893219f;
  const float e = low ? (near_one ? 0.0f : -1.0f) : of_v.e;
  const float f = low ? (near_one ? -v : 1.0f - 2.0f * v) : of_v.f;
  return -ExactLogOf(e, f);
}

// The random bits of a token's noise in the draw at `position`. The token with the largest scaled
// logit plus noise follows their softmax (Gumbel-max), so a draw needs no sum. A block of 64 tokens
// takes the four words of 16 counters, word by word: 16 neighbouring tokens use the same word of
// neighbouring counters, which suits vectors.
QUIRE_EXACT uint32_t RandomWord(uint64_t seed, uint32_t position, uint32_t token) {
  const Philox4 counter = {{token / 64 * 16 + token % 16, position, 0, 0}};
  return Philox4x32(seed, counter).word[token / 16 % 4];
}

QUIRE_EXACT float GumbelNoise(uint64_t seed, uint32_t position, uint32_t token) {
  return -ExactLog(ExactExponential(RandomWord(seed, position, token)));
}

// True if XTC acts on the draw at `position`: the coin is a word that no token's noise uses.
QUIRE_EXACT bool CoinFalls(uint64_t seed, uint32_t position, float probability) {
  const uint32_t word = Philox4x32(seed, {{0, position, 1, 0}}).word[0];
  return static_cast<double>(word) < static_cast<double>(probability) * 0x1p32;
}

// What DRY takes from the logit of a token after `length` repeated tokens, length >= allowed.
QUIRE_EXACT float DryPenalty(float multiplier, float base, int32_t length, int32_t allowed) {
  float penalty = multiplier;
  for (int32_t i = allowed; i < length; ++i) penalty *= base;
  return penalty;
}

// Sums over possible tokens: of a token's distance to the top, in units of 2^-12, and its square.
struct DistanceSums {
  uint64_t count, sum, squares;
};

QUIRE_EXACT uint64_t DistanceOf(float top, float logit) {
  const float distance = top - logit;
  return static_cast<uint64_t>((distance < 255.0f ? distance : 255.0f) * 0x1p12f);
}

// The largest distance to the top that top_n_sigma keeps.
QUIRE_EXACT float FarthestKept(float top_n_sigma, const DistanceSums& sums) {
  const double count = static_cast<double>(sums.count);
  const double mean = static_cast<double>(sums.sum) / count;
  const double variance = static_cast<double>(sums.squares) / count - mean * mean;
  const double sigma = variance > 0.0 ? __builtin_sqrt(variance) : 0.0;
  return static_cast<float>(static_cast<double>(top_n_sigma) * (sigma * 0x1p-12));
}

// Sums over possible tokens: their number, their mass, and their mass times -z, each term rounded
// down to an integer.
struct MassSums {
  uint64_t count, mass, moment;
};

// A token's term of MassSums::moment, from its e = ExactExp(z).
QUIRE_EXACT uint64_t MomentOf(float z, float e) {
  return z < -40.0f ? 0 : static_cast<uint64_t>(e * -z * 0x1p40f);
}

// The mean of -z by mass.
QUIRE_EXACT float MeanDistance(const MassSums& sums) {
  return static_cast<float>(static_cast<double>(sums.moment) / static_cast<double>(sums.mass));
}

// The temperature of a draw whose logits have these sums at temperature 1.
QUIRE_EXACT float DynamicTemperature(float temperature, float range, float exponent,
                                     const MassSums& sums) {
  float power = 0.0f;
  if (sums.count > 1) {
    const float log_mass = ExactLog(static_cast<float>(static_cast<double>(sums.mass) * 0x1p-40));
    const float most = ExactLog(static_cast<float>(sums.count));
    const float share = (log_mass + MeanDistance(sums)) / most;
    if (share > 0.0f) power = ExactExp(exponent * ExactLog(share < 1.0f ? share : 1.0f));
  }
  const float dynamic = (temperature - range) + (range + range) * power;
  return dynamic > 0x1p-10f ? dynamic : 0x1p-10f;
}

// The mass that the tokens up to an edge reach.
QUIRE_EXACT uint64_t MassOfShare(float share, uint64_t total) {
  const auto wanted =
      static_cast<uint64_t>(static_cast<double>(share) * static_cast<double>(total));
  return wanted > 0 ? wanted : 1;
}

}  // namespace quire
