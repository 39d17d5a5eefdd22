// AddUnit: the products of a unit of weights with a chunk of activations, by mma.sync.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/warp_tile.cuh"
#include "kernels/cuda/matmul/skinny/activation_stream.cuh"
#include "kernels/cuda/matmul/skinny/skinny_layout.cuh"
#include "kernels/cuda/matmul/skinny/weight_stream.cuh"

namespace quire::cuda::skinny {

template <typename F, int kTiles>
using Sums = typename F::Sum[kMaxGroups][kTiles][kChains][4];

// The operands of product `i` of half a chunk: of two rows' 16 bytes, and of a token's.
__device__ __forceinline__ uint32_t WordOf(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
struct RowOperand {
  uint32_t at[4];
};
template <typename F>
__device__ __forceinline__ RowOperand RowsOf(const uint4& low, const uint4& high, int i) {
  if constexpr (F::kWidens) {
    const uint32_t l = WordOf(low, i), h = WordOf(high, i);
    return {WidenLow(l), WidenLow(h), WidenHigh(l), WidenHigh(h)};
  } else {
    return {WordOf(low, 2 * i), WordOf(high, 2 * i), WordOf(low, 2 * i + 1),
            WordOf(high, 2 * i + 1)};
  }
}
template <typename F, int kTiles>
struct TokenOperands {
  uint32_t at[kTiles][2][F::kProducts][2];  // [tile][half of the chunk][product]

  __device__ __forceinline__ explicit TokenOperands(const Activations<kTiles>& x) {
#pragma unroll
    for (int i = 0; i < kTiles * 2 * F::kProducts; ++i) {
      const int tile = i / (2 * F::kProducts), half = i / F::kProducts % 2;
      const int product = i % F::kProducts;
      const uint4& column = x.at[tile][half];
      uint32_t(&to)[2] = at[tile][half][product];
      if constexpr (F::kWidens) {
        to[0] = WidenLow(WordOf(column, product));
        to[1] = WidenHigh(WordOf(column, product));
      } else {
        to[0] = WordOf(column, 2 * product);
        to[1] = WordOf(column, 2 * product + 1);
      }
    }
  }
};

// Adds one unit's products to the sums of its group.
template <typename F, int kTiles>
__device__ __forceinline__ void AddUnit(typename F::Sum (&sums)[kTiles][kChains][4],
                                        const WeightUnit& w, const TokenOperands<F, kTiles>& x,
                                        const TokenScales<kTiles>& x_scales) {
  typename F::Sum of_chunk[kTiles][kChains][4] = {};
#pragma unroll
  for (int i = 0; i < 2 * F::kProducts; ++i) {
    const int half = i / F::kProducts, product = i % F::kProducts;
    const RowOperand rows = RowsOf<F>(w.at[half][0], w.at[half][1], product);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint32_t(&tokens)[2] = x.at[tile][half][product];
      MultiplyAdd<typename F::Factor>((F::kBlocks ? of_chunk : sums)[tile][i % kChains], rows.at,
                                      tokens[0], tokens[1]);
    }
  }
  if constexpr (F::kBlocks) {
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) {
      const int tile = i / 4, j = i % 4;
      const float sum = of_chunk[tile][0][j] + of_chunk[tile][1][j];
      const float scale = w.scales[j / 2] * x_scales[tile][j % 2];
      sums[tile][0][j] = fmaf(sum, scale, sums[tile][0][j]);
    }
  }
}

}  // namespace quire::cuda::skinny
