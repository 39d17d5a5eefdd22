// Vec16: sixteen floats, the unit of every sum on the CPU. A long sum keeps sixteen partial sums,
// where lane i takes elements i, i + 16, ..., and Sum() folds them in one fixed tree. So the bits
// of a result do not depend on the registers of the machine. This is the portable version and the
// contract; vec16_avx2.h and vec16_avx512.h have the same names. Only Fma fuses a product and a
// sum. Everything has internal linkage, because the same names are compiled several times with
// different flags.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/vector/vector_kernels.h"
#include "kernels/dtype.h"

namespace quire::cpu {
namespace {

constexpr Isa kThisIsa = Isa::kGeneric;
// Register tile of the matrix product; query rows that share a pass over a tile of keys, and the
// sums of scores in registers during that pass.
constexpr int kTileTokens = 2, kTileRows = 2;
constexpr int kRowsAtOnce = 1, kScoresAtOnce = 1;

struct Vec16 {
  float lane[16];

  static Vec16 Set(float x) {
    Vec16 r;
    for (float& l : r.lane) l = x;
    return r;
  }
  // float, BF16 or F16 elements.
  template <typename T>
  static Vec16 Load(const T* p) {
    return LoadPart(p, 16);
  }
  // The first n elements, 0 <= n <= 16, then zeros; memory past them is not touched.
  template <typename T>
  static Vec16 LoadPart(const T* p, int n) {
    Vec16 r = Set(0.0f);
    for (int i = 0; i < n; ++i) r.lane[i] = ToFloat(p[i]);
    return r;
  }
  void Store(float* p) const { StorePart(p, 16); }
  void StorePart(float* p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = lane[i];
  }
};

template <typename Fn>
QUIRE_INLINE Vec16 EachLane(Fn fn) {
  Vec16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = fn(i);
  return r;
}

// The same value, loaded once. A compiler may fold a load into each of its uses, and two loads a
// cycle do not feed two multiply-adds.
inline Vec16 InRegister(Vec16 a) { return a; }

inline Vec16 operator+(Vec16 a, Vec16 b) {
  return EachLane([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec16 operator-(Vec16 a, Vec16 b) {
  return EachLane([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Vec16 operator*(Vec16 a, Vec16 b) {
  return EachLane([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Vec16 operator/(Vec16 a, Vec16 b) {
  return EachLane([&](int i) { return a.lane[i] / b.lane[i]; });
}
// a * b + c, rounded once.
inline Vec16 Fma(Vec16 a, Vec16 b, Vec16 c) {
  return EachLane([&](int i) { return std::fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
// The second operand where either is NaN.
inline Vec16 Max(Vec16 a, Vec16 b) {
  return EachLane([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec16 Min(Vec16 a, Vec16 b) {
  return EachLane([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
// `value`, but 0 in the lanes where x < limit.
inline Vec16 ZeroWhereLess(Vec16 value, Vec16 x, Vec16 limit) {
  return EachLane([&](int i) { return x.lane[i] < limit.lane[i] ? 0.0f : value.lane[i]; });
}
// a in lanes [begin, end), `other` in the rest; 0 <= begin <= end <= 16.
inline Vec16 KeepLanes(Vec16 a, int begin, int end, float other) {
  return EachLane([&](int i) { return i >= begin && i < end ? a.lane[i] : other; });
}
// 2^n where t = 1.5 * 2^23 + n, -126 <= n <= 127.
inline Vec16 PowerOfTwo(Vec16 t) {
  return EachLane([&](int i) {
    return std::bit_cast<float>((std::bit_cast<uint32_t>(t.lane[i]) + 127u) << 23);
  });
}

// The tree: lanes i and i + 8, then i and i + 4, i and i + 2, and the last two.
inline float Sum(Vec16 a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.lane[i] += a.lane[i + half];
  }
  return a.lane[0];
}
inline float MaxLane(Vec16 a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      a.lane[i] = a.lane[i] > a.lane[i + half] ? a.lane[i] : a.lane[i + half];
    }
  }
  return a.lane[0];
}
// True if a lane is NaN or +infinity.
inline bool AnyBad(Vec16 a) {
  bool bad = false;
  for (float l : a.lane) bad |= !(l < __builtin_inff());
  return bad;
}

// A step of a register tile: sum[t * kRows + r] += sixteen products of row t of x and row r of w.
template <int kTokens, int kRows, typename W>
inline void MultiplyAdd(const float* x, int64_t x_stride, const W* w, int64_t w_stride,
                        Vec16* sum) {
  Vec16 row[kRows];
  for (int r = 0; r < kRows; ++r) row[r] = Vec16::Load(w + r * w_stride);
  for (int t = 0; t < kTokens; ++t) {
    const Vec16 v = InRegister(Vec16::Load(x + t * x_stride));
    for (int r = 0; r < kRows; ++r) sum[t * kRows + r] = Fma(v, row[r], sum[t * kRows + r]);
  }
}

// sums[i] = Sum(a[i]) for 8 vectors.
inline void Sum8(const Vec16* a, float* sums) {
  for (int i = 0; i < 8; ++i) sums[i] = Sum(a[i]);
}
// Lane i = Sum(a[i]) of 16 vectors.
inline Vec16 Sum16(const Vec16* a) {
  return EachLane([&](int i) { return Sum(a[i]); });
}

inline Words BitsOf(const Vec16& a) {
  Words r;
  __builtin_memcpy(&r, &a, sizeof(r));
  return r;
}
inline Vec16 FloatsOf(const Words& a) {
  Vec16 r;
  __builtin_memcpy(&r, &a, sizeof(r));
  return r;
}
// All ones in the lanes where a < b.
inline Words Less(const Vec16& a, const Vec16& b) {
  Words r;
  for (int i = 0; i < 16; ++i) r[i] = a.lane[i] < b.lane[i] ? ~0u : 0u;
  return r;
}
// The upper halves of the 64-bit products.
inline Words MulHigh(Words a, uint32_t factor) {
  for (int i = 0; i < 16; ++i) a[i] = static_cast<uint32_t>((uint64_t{a[i]} * factor) >> 32);
  return a;
}

}  // namespace
}  // namespace quire::cpu
