// The inner loops of the matrix product: dot products along k in one Vec16 each, for a register
// tile of tokens and rows at a time. In every tile an element adds its k products in the same
// order. Included once per instruction set, after vector_rows.h.
#pragma once

#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/cpu/vector/vector_kernels.h"
#include "kernels/cpu/vector/vector_rows.h"

namespace quire::cpu {
namespace {

// One tile: kTokens rows of x times kRows rows of w.
template <int kTokens, int kRows, typename W>
QUIRE_INLINE void Tile(const MatMulBlock& b, const float* x, const W* w, float* out) {
  constexpr int kSums = kTokens * kRows;
  Vec16 sum[RoundUp(kSums, 8)];
#pragma GCC unroll 32
  for (Vec16& s : sum) s = Vec16::Set(0.0f);
  int64_t i = 0;
  for (; i + 16 <= b.k; i += 16) {
    MultiplyAdd<kTokens, kRows>(x + i, b.x_stride, w + i, b.w_stride, sum);
  }
  if (i < b.k) {
    const int n = static_cast<int>(b.k - i);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const Vec16 v = Vec16::LoadPart(x + t * b.x_stride + i, n);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec16 row = Vec16::LoadPart(w + r * b.w_stride + i, n);
        sum[t * kRows + r] = Fma(v, row, sum[t * kRows + r]);
      }
    }
  }
  float result[RoundUp(kSums, 8)];
#pragma GCC unroll 4
  for (int s = 0; s < kSums; s += 8) Sum8(sum + s, result + s);
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) out[t * b.out_stride + r] = result[t * kRows + r];
  }
}

// kTokens tokens against all rows.
template <int kTokens, int kRows, typename W>
void TileRow(const MatMulBlock& b, int64_t t) {
  const float* x = b.x + t * b.x_stride;
  const W* w = static_cast<const W*>(b.w.data);
  float* out = b.out + t * b.out_stride;
  int64_t r = 0;
  for (; r + kRows <= b.rows; r += kRows) Tile<kTokens, kRows>(b, x, w + r * b.w_stride, out + r);
  for (; r < b.rows; ++r) Tile<kTokens, 1>(b, x, w + r * b.w_stride, out + r);
}

template <typename W>
void MatMulOf(const MatMulBlock& b) {
  constexpr int kSums = kTileTokens * kTileRows;
  int64_t t = 0;
  for (; t + kTileTokens <= b.tokens; t += kTileTokens) TileRow<kTileTokens, kTileRows, W>(b, t);
  if constexpr (kTileTokens > 4) {
    for (; t + 4 <= b.tokens; t += 4) TileRow<4, kSums / 4, W>(b, t);
  }
  if constexpr (kTileTokens > 2) {
    for (; t + 2 <= b.tokens; t += 2) TileRow<2, 8, W>(b, t);
  }
  for (; t < b.tokens; ++t) TileRow < 1, kSums<8 ? kSums : 8, W>(b, t);
}

void MatMulKernel(const MatMulBlock& b) {
  DispatchFloat(b.w.dtype, [&](auto tag) { MatMulOf<decltype(tag)>(b); });
}

}  // namespace
}  // namespace quire::cpu
