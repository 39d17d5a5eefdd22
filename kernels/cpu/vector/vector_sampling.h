// The sampler's passes over a row of logits: the arithmetic of kernels/sampling_math.h as loops
// that the compiler vectorises. Included once per instruction set, after vector_rows.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/vector_kernels.h"
#include "kernels/cpu/vector/vector_rows.h"
#include "kernels/sampling_math.h"

namespace quire::cpu {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

RowStats StatsOfRow(const float* x, int64_t count) {
  Vec16 top = Vec16::Set(kMinusInfinity);
  bool bad = false;
  EachVector(count, [&](int64_t i, int n) {
    const Vec16 v = KeepLanes(LoadN(x + i, n), 0, n, kMinusInfinity);
    bad |= AnyBad(v);
    top = Max(v, top);
  });
  const float max = MaxLane(top);
  return RowStats{max, bad || max == kMinusInfinity};
}

void ExpOfRow(const float* x, float* e, int64_t count) {
  EachVector(count, [&](int64_t i, int n) { StoreN(Exp(LoadN(x + i, n)), e + i, n); });
}

uint64_t ExpMass(const float* x, float top, int64_t count) {
  const Vec16 shift = Vec16::Set(top), unit = Vec16::Set(0x1p40f);
  int64_t lane_sum[16] = {};
  EachVector(count, [&](int64_t i, int n) {
    float e[16];
    KeepLanes(Exp(LoadN(x + i, n) - shift) * unit, 0, n, 0.0f).Store(e);
    for (int j = 0; j < 16; ++j) lane_sum[j] += static_cast<int64_t>(e[j]);
  });
  uint64_t sum = 0;
  for (int64_t s : lane_sum) sum += static_cast<uint64_t>(s);
  return sum;
}

void ScaleLogits(const float* x, float top, float temperature, float* z, int64_t count) {
  const Vec16 shift = Vec16::Set(top), divisor = Vec16::Set(temperature);
  EachVector(count,
             [&](int64_t i, int n) { StoreN((LoadN(x + i, n) - shift) / divisor, z + i, n); });
}

constexpr int kDrawBlock = 64;  // tokens: the four words of sixteen Philox counters

int64_t FindValue(const float* x, float value, int64_t count) {
  int64_t i = 0;
  for (; i + kDrawBlock <= count; i += kDrawBlock) {
    int hits = 0;
    for (int j = 0; j < kDrawBlock; ++j) hits += x[i + j] == value ? 1 : 0;
    if (hits != 0) break;
  }
  while (i < count && x[i] != value) ++i;
  return i;
}

QUIRE_INLINE Words Select(Words mask, Words a, Words b) { return (a & mask) | (b & ~mask); }
QUIRE_INLINE Vec16 Select(Words mask, Vec16 a, Vec16 b) {
  return FloatsOf(Select(mask, BitsOf(a), BitsOf(b)));
}
// All ones where the sign bit is set.
QUIRE_INLINE Words Negative(Words a) {
  return reinterpret_cast<Words>(reinterpret_cast<Ints>(a) >> 31);
}

QUIRE_INLINE Vec16 ToFloats(Words a) {
  using Floats = float __attribute__((vector_size(64)));
  const Floats f = __builtin_convertvector(reinterpret_cast<Ints>(a), Floats);
  return FloatsOf(reinterpret_cast<Words>(f));
}

// ExactLogOf, lane by lane.
QUIRE_INLINE Vec16 LogOf(Vec16 e, Vec16 f) {
  Vec16 p = Fma(f, Vec16::Set(0.0674666315317154f), Vec16::Set(-0.11675640195608139f));
  p = Fma(p, f, Vec16::Set(0.11888144910335541f));
  p = Fma(p, f, Vec16::Set(-0.1240558922290802f));
  p = Fma(p, f, Vec16::Set(0.14219555258750916f));
  p = Fma(p, f, Vec16::Set(-0.1666799634695053f));
  p = Fma(p, f, Vec16::Set(0.2000211924314499f));
  p = Fma(p, f, Vec16::Set(-0.25000008940696716f));
  p = Fma(p, f, Vec16::Set(0.3333331346511841f));
  p = Fma(p, f, Vec16::Set(-0.5f));
  p = Fma(f * f, p, f);
  return Fma(e, Vec16::Set(0.693147182f), Fma(e, Vec16::Set(-1.90465421e-9f), p));
}

struct LogArguments {
  Vec16 e, f;
};

// SplitLog, lane by lane.
QUIRE_INLINE LogArguments Split(Vec16 x) {
  const Words bits = BitsOf(x);
  const Words e = reinterpret_cast<Words>(reinterpret_cast<Ints>(bits - 0x3f3504f3u) >> 23);
  return {ToFloats(e), FloatsOf(bits - (e << 23)) - Vec16::Set(1.0f)};
}

// GumbelNoise of sixteen random words.
QUIRE_INLINE Vec16 Noise(Words words) {
  const Vec16 zero = Vec16::Set(0.0f), one = Vec16::Set(1.0f), minus_one = Vec16::Set(-1.0f);
  const Words high = Negative(words);
  const Vec16 v = (ToFloats(words ^ high) + Vec16::Set(0.5f)) * Vec16::Set(0x1p-32f);
  const LogArguments of_v = Split(v);
  const Words near_one = Less(v, Vec16::Set(0.292893219f));
  const Vec16 low_e = Select(near_one, zero, minus_one);
  const Vec16 low_f = Select(near_one, zero - v, one - Vec16::Set(2.0f) * v);
  const Vec16 exponential = zero - LogOf(Select(high, of_v.e, low_e), Select(high, of_v.f, low_f));
  const LogArguments of_exponential = Split(exponential);
  return zero - LogOf(of_exponential.e, of_exponential.f);
}

// The random words of tokens [first, first + 64), first a multiple of 64.
QUIRE_INLINE void RandomWords(const DrawRow& row, uint32_t first, Words* c) {
  const Words lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Words zero = {};
  c[0] = lanes + first / 4;
  c[1] = zero + row.position;
  c[2] = c[3] = zero;
  uint32_t k0 = static_cast<uint32_t>(row.seed), k1 = static_cast<uint32_t>(row.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Words a_high = MulHigh(c[0], 0xD2511F53u), a_low = c[0] * 0xD2511F53u;
    const Words b_high = MulHigh(c[2], 0xCD9E8D57u), b_low = c[2] * 0xCD9E8D57u;
    c[0] = b_high ^ c[1] ^ k0;
    c[1] = b_low;
    c[2] = a_high ^ c[3] ^ k1;
    c[3] = a_low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// The best token of each lane, which has the tokens 16 i + lane.
struct BestOfLanes {
  Vec16 score;
  Words token;
};

// True if any lane is above -infinity.
QUIRE_INLINE bool AnyKept(Vec16 a, Vec16 b, Vec16 c, Vec16 d) {
  return MaxLane(Max(Max(a, b), Max(c, d))) > kMinusInfinity;
}

// z of 16 tokens, -infinity where a filter drops the token.
QUIRE_INLINE Vec16 Kept(const DrawRow& row, int64_t first) {
  const int64_t left = row.vocab - first;
  const Vec16 minus_infinity = Vec16::Set(kMinusInfinity);
  if (left <= 0) return minus_infinity;
  Vec16 z = left >= 16 ? Vec16::Load(row.z + first)
                       : KeepLanes(Vec16::LoadPart(row.z + first, static_cast<int>(left)), 0,
                                   static_cast<int>(left), kMinusInfinity);
  z = Select(Less(z, Vec16::Set(row.min_z)), minus_infinity, z);
  if (row.min_p > 0.0f) z = Select(Less(Exp(z), Vec16::Set(row.min_p)), minus_infinity, z);
  return z;
}

Drawn DrawToken(const DrawRow& row) {
  const Words lanes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  BestOfLanes best = {Vec16::Set(kMinusInfinity), ~Words{}};
  for (int64_t first = 0; first < row.vocab; first += kDrawBlock) {
    Vec16 z[4];
    for (int i = 0; i < 4; ++i) z[i] = Kept(row, first + 16 * i);
    if (!AnyKept(z[0], z[1], z[2], z[3])) continue;
    Words words[4];
    RandomWords(row, static_cast<uint32_t>(first), words);
    for (uint32_t i = 0; i < 4; ++i) {
      const Vec16 score = z[i] + Noise(words[i]);
      const Words better = Less(best.score, score);
      best.score = Select(better, score, best.score);
      best.token = Select(better, lanes + (static_cast<uint32_t>(first) + 16 * i), best.token);
    }
  }
  float score[16];
  best.score.Store(score);
  Drawn drawn{kMinusInfinity, -1};
  for (int i = 0; i < 16; ++i) {
    const int32_t token = static_cast<int32_t>(best.token[i]);
    if (token < 0) continue;
    if (score[i] > drawn.score || (score[i] == drawn.score && token < drawn.token)) {
      drawn = {score[i], token};
    }
  }
  return drawn;
}

}  // namespace
}  // namespace quire::cpu
