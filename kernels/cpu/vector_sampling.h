// The sampler's passes over a row of logits. The arithmetic is that of kernels/sampling_math.h,
// written as loops the compiler turns into vectors. Included once per instruction set, after
// vector_rows.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector_kernels.h"
#include "kernels/cpu/vector_rows.h"
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

constexpr int kDrawBlock = 64;  // tokens: sixteen Philox counters

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

// The random words of tokens [first, first + 64); first is a multiple of 4.
QUIRE_INLINE void RandomWords(const DrawRow& row, uint32_t first, uint32_t* words) {
  uint32_t c[4][16];
  for (uint32_t i = 0; i < 16; ++i) {
    c[0][i] = first / 4 + i;
    c[1][i] = row.position;
    c[2][i] = c[3][i] = 0;
  }
  uint32_t k0 = static_cast<uint32_t>(row.seed), k1 = static_cast<uint32_t>(row.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 16; ++i) {
      const uint64_t a = uint64_t{0xD2511F53u} * c[0][i];
      const uint64_t b = uint64_t{0xCD9E8D57u} * c[2][i];
      c[0][i] = static_cast<uint32_t>(b >> 32) ^ c[1][i] ^ k0;
      c[1][i] = static_cast<uint32_t>(b);
      c[2][i] = static_cast<uint32_t>(a >> 32) ^ c[3][i] ^ k1;
      c[3][i] = static_cast<uint32_t>(a);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int i = 0; i < 16; ++i) {
    for (int w = 0; w < 4; ++w) words[4 * i + w] = c[w][i];
  }
}

struct Lanes {
  float score[kDrawBlock];
  int32_t token[kDrawBlock];
};

// Scores tokens [first, first + 64) with scaled logits z; a z of -infinity takes no part.
QUIRE_INLINE void DrawBlock(const DrawRow& row, int32_t first, const float* z, Lanes& best) {
  uint32_t words[kDrawBlock];
  RandomWords(row, static_cast<uint32_t>(first), words);
  for (int i = 0; i < kDrawBlock; ++i) {
    const float score = z[i] - ExactLog(ExactExponential(words[i]));
    const bool better = score > best.score[i];
    best.score[i] = better ? score : best.score[i];
    best.token[i] = better ? first + i : best.token[i];
  }
}

Drawn DrawToken(const DrawRow& row) {
  Lanes best;
  for (int i = 0; i < kDrawBlock; ++i) {
    best.score[i] = kMinusInfinity;
    best.token[i] = -1;
  }
  for (int64_t first = 0; first < row.vocab; first += kDrawBlock) {
    const int64_t left = row.vocab - first;
    float z[kDrawBlock];
    if (left >= kDrawBlock) {
      for (int i = 0; i < kDrawBlock; ++i) z[i] = row.z[first + i];
    } else {
      for (int i = 0; i < kDrawBlock; ++i) z[i] = i < left ? row.z[first + i] : kMinusInfinity;
    }
    if (row.min_p > 0.0f) {
      float e[kDrawBlock];
      ExpOfRow(z, e, kDrawBlock);
      for (int i = 0; i < kDrawBlock; ++i) z[i] = e[i] >= row.min_p ? z[i] : kMinusInfinity;
    }
    int kept = 0;
    for (int i = 0; i < kDrawBlock; ++i) {
      z[i] = z[i] >= row.min_z ? z[i] : kMinusInfinity;
      kept += z[i] > kMinusInfinity ? 1 : 0;
    }
    if (kept != 0) DrawBlock(row, static_cast<int32_t>(first), z, best);
  }
  Drawn drawn{kMinusInfinity, -1};
  for (int i = 0; i < kDrawBlock; ++i) {
    if (best.token[i] < 0) continue;
    const bool tie_to_lower = best.score[i] == drawn.score && best.token[i] < drawn.token;
    if (best.score[i] > drawn.score || tie_to_lower) drawn = {best.score[i], best.token[i]};
  }
  return drawn;
}

}  // namespace
}  // namespace quire::cpu
