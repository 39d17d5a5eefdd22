// DecodeColumns: a warp's running softmax in a decode CTA, and what its queries see. Tokens are the
// rows of the matrix instructions and queries their columns, eight a tile: q K^T and p V are
// computed as K q^T and V^T p^T, so that few queries waste little of an instruction.
//
// Of each tile, lane l has queries 2 (l % 4) and 2 (l % 4) + 1: index 0 and 1 of all that follows.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_tile.cuh"

namespace quire::cuda {

inline constexpr int kTileQueries = 8;
inline constexpr int kQueryTiles = kDecodeRows / kTileQueries;

// The row of a sequence's queries that this lane has at `index` of a tile.
__device__ __forceinline__ int QueryRowAt(int tile, int index) {
  return tile * kTileQueries + static_cast<int>(threadIdx.x % 4 * 2) + index;
}

// The sum over the eight lanes that have a query.
__device__ __forceinline__ float QuerySum(float x) {
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
}

// The transpose of a matrix of 8 x 8 elements of 16 bits, of which each lane has two of a row.
__device__ __forceinline__ uint32_t Transposed(uint32_t two) {
  uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(two));
  return transposed;
}

// A tile's scores of kGroups * 16 tokens: of group g, s[g][0] and [1] are those of token l / 4,
// s[g][2] and [3] those of the token 8 further on, each of two queries.
template <int kGroups>
using TokenScores = float[kGroups][4];

// CapScores (attention_tile.cuh) of a query's two tokens, which share a reciprocal.
template <int kGroups>
__device__ __forceinline__ void CapTokens(TokenScores<kGroups>& s, const RowFactors& factors,
                                          float cap_log2) {
#pragma unroll
  for (int i = 0; i < kGroups * 2; ++i) {
    float &first = s[i / 2][i % 2], &second = s[i / 2][2 + i % 2];
    const float factor = factors.of_row[i % 2];
    const float x = 1.0f + Exp2(fminf(first * factor, 30.0f));
    const float y = 1.0f + Exp2(fminf(second * factor, 30.0f));
    const float inverse = Reciprocal(x * y) * (-2.0f * cap_log2);
    first = fmaf(inverse, y, cap_log2);
    second = fmaf(inverse, x, cap_log2);
  }
}

// Sight: the tokens that a lane's queries see, [low, high).
template <int kTiles>
struct Sight {
  int low[kTiles][2], high[kTiles][2];
  int all_low, all_high;  // the tokens that every query sees

  __device__ void Set(const AttentionArgs& a, const DecodeSequence& s) {
    const int first_high = s.context - s.num_queries + 1;
#pragma unroll
    for (int i = 0; i < kTiles * 2; ++i) {
      const int tile = i / 2, row = QueryRowAt(tile, i % 2);
      high[tile][i % 2] = first_high + min(a.QueryOf(row), s.num_queries - 1);
      low[tile][i % 2] = a.window > 0 ? high[tile][i % 2] - a.window : 0;
    }
    all_low = a.window > 0 ? s.context - a.window : 0;
    all_high = first_high;
  }

  // Whether some query does not see some of `count` tokens.
  __device__ __forceinline__ bool Hides(int token, int count) const {
    return token < all_low || token + count > all_high;
  }
  template <int kGroups>
  __device__ __forceinline__ void Mask(int token, int tile, TokenScores<kGroups>& s) const {
#pragma unroll
    for (int i = 0; i < kGroups * 4; ++i) {
      const int t = token + i / 4 * 16 + i / 2 % 2 * 8 + static_cast<int>(threadIdx.x % 32 / 4);
      if (t < low[tile][i % 2] || t >= high[tile][i % 2]) s[i / 4][i % 4] = -INFINITY;
    }
  }
};

// o[tile][b] has 16 columns of the result, in rows l / 4 and l / 4 + 8 of an instruction: [0] and
// [1] of the first, [2] and [3] of the second, each of two queries. AddValues says which columns.
// `top` is in units of log2; `sum` is of this lane's tokens alone.
template <int D, int kTiles>
struct DecodeColumns {
  float o[kTiles][D / 16][4];
  float top[kTiles][2], sum[kTiles][2];

  __device__ __forceinline__ void Reset() {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < D / 16 * 4; ++i) o[tile][i / 4][i % 4] = 0.0f;
      top[tile][0] = top[tile][1] = -INFINITY;
      sum[tile][0] = sum[tile][1] = 0.0f;
    }
  }

  // Takes the scores of the first kSome tiles, which become weights. The tiles take each step
  // together, so that one waits while the other computes.
  template <int kSome, int kGroups>
  __device__ __forceinline__ void TakeScores(float (&s)[kSome][kGroups][4],
                                             const RowFactors (&scales_log2)[kSome]) {
    float largest[kSome * 2], factor[kSome * 2];
#pragma unroll
    for (int i = 0; i < kSome * 2; ++i) largest[i] = LargestOf<kGroups>(s[i / 2], i % 2);
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) {
#pragma unroll
      for (float& x : largest) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
    }
    bool same = true;
#pragma unroll
    for (int i = 0; i < kSome * 2; ++i) {
      const int tile = i / 2, j = i % 2;
      const float scale = scales_log2[tile].of_row[j];
      const float next = fmaxf(top[tile][j], largest[i] * scale), base = FiniteTop(next);
      factor[i] = Exp2(top[tile][j] - base);
      same = same && factor[i] == 1.0f;
      top[tile][j] = next;
      float sum_here = 0.0f;
#pragma unroll
      for (int at = 0; at < kGroups * 2; ++at) {
        float& weight = s[tile][at / 2][at % 2 * 2 + j];
        weight = Exp2(fmaf(weight, scale, -base));
        sum_here += weight;
      }
      sum[tile][j] = fmaf(sum[tile][j], factor[i], sum_here);
    }
    if (__all_sync(0xffffffffu, same)) return;  // a factor of one changes no bit
#pragma unroll
    for (int i = 0; i < kSome * D / 16 * 4; ++i) {
      const int tile = i / (D / 4), at = i % (D / 4);
      o[tile][at / 4][at % 4] *= factor[tile * 2 + at % 2];
    }
  }

 private:
  template <int kGroups>
  __device__ __forceinline__ static float LargestOf(const TokenScores<kGroups>& s, int j) {
    float largest = fmaxf(s[0][j], s[0][2 + j]);
#pragma unroll
    for (int g = 1; g < kGroups; ++g) largest = fmaxf(largest, fmaxf(s[g][j], s[g][2 + j]));
    return largest;
  }
};

}  // namespace quire::cuda
