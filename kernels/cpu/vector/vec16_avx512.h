// Vec16 on AVX-512 (F, BW, VL, DQ): sixteen floats in one register. The contract of Vec16 is
// written in vec16_generic.h. Everything has internal linkage: this header is compiled with its own
// flags.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/vector/vector_kernels.h"
#include "kernels/dtype.h"

namespace quire::cpu {
namespace {

constexpr Isa kThisIsa = Isa::kAvx512;
// Register tile of the matrix product: 24 accumulators and the operands fit 32 registers.
constexpr int kTileTokens = 8, kTileRows = 3;
constexpr int kRowsAtOnce = 4, kScoresAtOnce = 16;

struct Vec16 {
  __m512 v;

  static QUIRE_INLINE Vec16 Set(float x) { return {_mm512_set1_ps(x)}; }
  static QUIRE_INLINE Vec16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static QUIRE_INLINE Vec16 Load(const BF16* p) { return FromBf16(_mm256_loadu_si256(AsInts(p))); }
  static QUIRE_INLINE Vec16 Load(const F16* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(AsInts(p)))};
  }
  static QUIRE_INLINE Vec16 LoadPart(const float* p, int n) {
    return {_mm512_maskz_loadu_ps(Mask(n), p)};
  }
  static QUIRE_INLINE Vec16 LoadPart(const BF16* p, int n) {
    return FromBf16(_mm256_maskz_loadu_epi16(Mask(n), p));
  }
  static QUIRE_INLINE Vec16 LoadPart(const F16* p, int n) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(Mask(n), p))};
  }
  QUIRE_INLINE void Store(float* p) const { _mm512_storeu_ps(p, v); }
  QUIRE_INLINE void StorePart(float* p, int n) const { _mm512_mask_storeu_ps(p, Mask(n), v); }

 private:
  template <typename T>
  static QUIRE_INLINE const __m256i* AsInts(const T* p) {
    return reinterpret_cast<const __m256i*>(p);
  }
  static QUIRE_INLINE __mmask16 Mask(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static QUIRE_INLINE Vec16 FromBf16(__m256i bits) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
};

QUIRE_INLINE Vec16 InRegister(Vec16 a) {
  asm("" : "+v"(a.v));
  return a;
}

QUIRE_INLINE Vec16 operator+(Vec16 a, Vec16 b) { return {_mm512_add_ps(a.v, b.v)}; }
QUIRE_INLINE Vec16 operator-(Vec16 a, Vec16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
QUIRE_INLINE Vec16 operator*(Vec16 a, Vec16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
QUIRE_INLINE Vec16 operator/(Vec16 a, Vec16 b) { return {_mm512_div_ps(a.v, b.v)}; }
QUIRE_INLINE Vec16 Fma(Vec16 a, Vec16 b, Vec16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
QUIRE_INLINE Vec16 Max(Vec16 a, Vec16 b) { return {_mm512_max_ps(a.v, b.v)}; }
QUIRE_INLINE Vec16 Min(Vec16 a, Vec16 b) { return {_mm512_min_ps(a.v, b.v)}; }

QUIRE_INLINE Vec16 ZeroWhereLess(Vec16 value, Vec16 x, Vec16 limit) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_NLT_UQ), value.v)};
}

QUIRE_INLINE Vec16 KeepLanes(Vec16 a, int begin, int end, float other) {
  const __mmask16 mask = static_cast<__mmask16>(((1u << end) - 1u) & ~((1u << begin) - 1u));
  return {_mm512_mask_mov_ps(_mm512_set1_ps(other), mask, a.v)};
}

QUIRE_INLINE Vec16 PowerOfTwo(Vec16 t) {
  const __m512i n = _mm512_add_epi32(_mm512_castps_si512(t.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(n, 23))};
}

QUIRE_INLINE float Sum(Vec16 a) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

QUIRE_INLINE float MaxLane(Vec16 a) { return _mm512_reduce_max_ps(a.v); }

QUIRE_INLINE bool AnyBad(Vec16 a) {
  const __m512 infinity = _mm512_set1_ps(__builtin_inff());
  return _mm512_cmp_ps_mask(a.v, infinity, _CMP_NLT_UQ) != 0;
}

template <int kTokens, int kRows, typename W>
QUIRE_INLINE void MultiplyAdd(const float* x, int64_t x_stride, const W* w, int64_t w_stride,
                              Vec16* sum) {
  Vec16 row[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) row[r] = Vec16::Load(w + r * w_stride);
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    const Vec16 v = InRegister(Vec16::Load(x + t * x_stride));
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) sum[t * kRows + r] = Fma(v, row[r], sum[t * kRows + r]);
  }
}

// Adds lane i + 8 to lane i of a and of b: eight sums of each.
QUIRE_INLINE __m512 Fold8(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
}
QUIRE_INLINE __m512 Fold4(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}
QUIRE_INLINE __m512 Fold2(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
}
QUIRE_INLINE __m512 Fold1(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
}
// [a4 b4 c4 d4]: four vectors after two levels, four lanes of each.
QUIRE_INLINE __m512 FoldFour(const Vec16* a) {
  return Fold4(Fold8(a[0].v, a[1].v), Fold8(a[2].v, a[3].v));
}
QUIRE_INLINE __m512 TransposeLanes(__m512 a) {
  return _mm512_permutexvar_ps(
      _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), a);
}

QUIRE_INLINE void Sum8(const Vec16* a, float* sums) {
  const __m512 half = Fold2(FoldFour(a), FoldFour(a + 4));
  const __m512 all = TransposeLanes(Fold1(half, half));
  _mm256_storeu_ps(sums, _mm512_castps512_ps256(all));
}

QUIRE_INLINE Vec16 Sum16(const Vec16* a) {
  const __m512 low = Fold2(FoldFour(a), FoldFour(a + 4));
  const __m512 high = Fold2(FoldFour(a + 8), FoldFour(a + 12));
  return {TransposeLanes(Fold1(low, high))};
}

QUIRE_INLINE Words BitsOf(Vec16 a) { return reinterpret_cast<Words>(a.v); }
QUIRE_INLINE Vec16 FloatsOf(Words a) { return {reinterpret_cast<__m512>(a)}; }

QUIRE_INLINE Words Less(Vec16 a, Vec16 b) {
  return reinterpret_cast<Words>(_mm512_movm_epi32(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)));
}

QUIRE_INLINE Words MulHigh(Words a, uint32_t factor) {
  const __m512i v = reinterpret_cast<__m512i>(a), f = _mm512_set1_epi32(static_cast<int>(factor));
  const __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(v, f), 32);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(v, 32), f);
  return reinterpret_cast<Words>(_mm512_mask_blend_epi32(0xAAAA, even, odd));
}

}  // namespace
}  // namespace quire::cpu
