// Vec16 on AVX2 with FMA and F16C: sixteen floats in two registers. The contract of Vec16 is
// written in vec16_generic.h. Everything has internal linkage: this header is compiled with its own
// flags.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/vector/vector_kernels.h"
#include "kernels/dtype.h"

namespace quire::cpu {
namespace {

constexpr Isa kThisIsa = Isa::kAvx2;
// Register tile of the matrix product: 6 accumulators are 12 of the 16 registers.
constexpr int kTileTokens = 2, kTileRows = 3;
constexpr int kRowsAtOnce = 2, kScoresAtOnce = 4;

QUIRE_INLINE __m256 WidenBf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

QUIRE_INLINE __m256 Load8(const float* p) { return _mm256_loadu_ps(p); }
QUIRE_INLINE __m256 Load8(const BF16* p) {
  return WidenBf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
QUIRE_INLINE __m256 Load8(const F16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// All ones in the lanes below n.
QUIRE_INLINE __m256i LaneMask(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

struct Vec16 {
  __m256 lo, hi;

  static QUIRE_INLINE Vec16 Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  template <typename T>
  static QUIRE_INLINE Vec16 Load(const T* p) {
    return {Load8(p), Load8(p + 8)};
  }
  static QUIRE_INLINE Vec16 LoadPart(const float* p, int n) {
    return {_mm256_maskload_ps(p, LaneMask(n)), _mm256_maskload_ps(p + 8, LaneMask(n - 8))};
  }
  template <typename T>  // AVX2 has no masked load of 16-bit lanes
  static QUIRE_INLINE Vec16 LoadPart(const T* p, int n) {
    T copy[16] = {};
    for (int i = 0; i < n; ++i) copy[i] = p[i];
    return Load(copy);
  }
  QUIRE_INLINE void Store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  QUIRE_INLINE void StorePart(float* p, int n) const {
    _mm256_maskstore_ps(p, LaneMask(n), lo);
    _mm256_maskstore_ps(p + 8, LaneMask(n - 8), hi);
  }
};

// With sixteen registers operands are better left in memory.
QUIRE_INLINE Vec16 InRegister(Vec16 a) { return a; }

QUIRE_INLINE Vec16 operator+(Vec16 a, Vec16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
QUIRE_INLINE Vec16 operator-(Vec16 a, Vec16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
QUIRE_INLINE Vec16 operator*(Vec16 a, Vec16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
QUIRE_INLINE Vec16 operator/(Vec16 a, Vec16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
QUIRE_INLINE Vec16 Fma(Vec16 a, Vec16 b, Vec16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
QUIRE_INLINE Vec16 Max(Vec16 a, Vec16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
QUIRE_INLINE Vec16 Min(Vec16 a, Vec16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

QUIRE_INLINE Vec16 ZeroWhereLess(Vec16 value, Vec16 x, Vec16 limit) {
  return {_mm256_and_ps(value.lo, _mm256_cmp_ps(x.lo, limit.lo, _CMP_NLT_UQ)),
          _mm256_and_ps(value.hi, _mm256_cmp_ps(x.hi, limit.hi, _CMP_NLT_UQ))};
}

QUIRE_INLINE Vec16 KeepLanes(Vec16 a, int begin, int end, float other) {
  const __m256 o = _mm256_set1_ps(other);
  const __m256i lo = _mm256_andnot_si256(LaneMask(begin), LaneMask(end));
  const __m256i hi = _mm256_andnot_si256(LaneMask(begin - 8), LaneMask(end - 8));
  return {_mm256_blendv_ps(o, a.lo, _mm256_castsi256_ps(lo)),
          _mm256_blendv_ps(o, a.hi, _mm256_castsi256_ps(hi))};
}

QUIRE_INLINE __m256 PowerOfTwo(__m256 t) {
  const __m256i n = _mm256_add_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(n, 23));
}
QUIRE_INLINE Vec16 PowerOfTwo(Vec16 t) { return {PowerOfTwo(t.lo), PowerOfTwo(t.hi)}; }

QUIRE_INLINE float Sum(Vec16 a) {
  const __m256 s8 = _mm256_add_ps(a.lo, a.hi);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

QUIRE_INLINE float MaxLane(Vec16 a) {
  const __m256 m8 = _mm256_max_ps(a.lo, a.hi);
  const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
  const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
  return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}

QUIRE_INLINE bool AnyBad(Vec16 a) {
  const __m256 infinity = _mm256_set1_ps(__builtin_inff());
  const __m256 bad = _mm256_or_ps(_mm256_cmp_ps(a.lo, infinity, _CMP_NLT_UQ),
                                  _mm256_cmp_ps(a.hi, infinity, _CMP_NLT_UQ));
  return _mm256_movemask_ps(bad) != 0;
}

// One half after the other: the registers hold two rows of x, one of w and the sums, and no more.
template <int kTokens, int kRows, typename W>
QUIRE_INLINE void MultiplyAdd(const float* x, int64_t x_stride, const W* w, int64_t w_stride,
                              Vec16* sum) {
  __m256 v[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) v[t] = _mm256_loadu_ps(x + t * x_stride);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    __m256 row = Load8(w + r * w_stride);
    asm("" : "+x"(row));  // loaded once, not folded into each use
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      __m256& s = sum[t * kRows + r].lo;
      s = _mm256_fmadd_ps(v[t], row, s);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) v[t] = _mm256_loadu_ps(x + t * x_stride + 8);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    __m256 row = Load8(w + r * w_stride + 8);
    asm("" : "+x"(row));
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      __m256& s = sum[t * kRows + r].hi;
      s = _mm256_fmadd_ps(v[t], row, s);
    }
  }
}

// [a4 b4]: the four lanes left of each of two vectors after two levels.
QUIRE_INLINE __m256 FoldTwo(Vec16 x, Vec16 y) {
  const __m256 a = _mm256_add_ps(x.lo, x.hi), b = _mm256_add_ps(y.lo, y.hi);
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
QUIRE_INLINE __m256 Fold2(__m256 a, __m256 b) {
  return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE));
}
QUIRE_INLINE __m256 Fold1(__m256 a, __m256 b) {
  return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xDD));
}

QUIRE_INLINE __m256 Fold8(const Vec16* a) {
  const __m256 r = Fold2(FoldTwo(a[0], a[1]), FoldTwo(a[2], a[3]));
  const __m256 s = Fold2(FoldTwo(a[4], a[5]), FoldTwo(a[6], a[7]));
  return _mm256_permutevar8x32_ps(Fold1(r, s), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

QUIRE_INLINE void Sum8(const Vec16* a, float* sums) { _mm256_storeu_ps(sums, Fold8(a)); }
QUIRE_INLINE Vec16 Sum16(const Vec16* a) { return {Fold8(a), Fold8(a + 8)}; }

QUIRE_INLINE Words BitsOf(Vec16 a) {
  Words r;
  __builtin_memcpy(&r, &a, sizeof(r));
  return r;
}
QUIRE_INLINE Vec16 FloatsOf(Words a) {
  Vec16 r;
  __builtin_memcpy(&r, &a, sizeof(r));
  return r;
}

QUIRE_INLINE Words Less(Vec16 a, Vec16 b) {
  return BitsOf(
      Vec16{_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)});
}

QUIRE_INLINE Words MulHigh(Words a, uint32_t factor) {
  const __m256i f = _mm256_set1_epi32(static_cast<int>(factor));
  __m256i half[2];
  __builtin_memcpy(half, &a, sizeof(a));
  for (__m256i& v : half) {
    const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(v, f), 32);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(v, 32), f);
    v = _mm256_blend_epi32(even, odd, 0xAA);
  }
  __builtin_memcpy(&a, half, sizeof(a));
  return a;
}

}  // namespace
}  // namespace quire::cpu
