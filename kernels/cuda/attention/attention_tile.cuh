// Work on tiles that the attention kernels share: matrix fragments of swizzled rows
// (shared_memory.cuh), and the step of the running softmax.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/device/warp_tile.cuh"

namespace quire::cuda {

// This lane's address for loading the four matrices of 16 rows and vectors 0 and 1: rows 0-7 and
// 8-15 of vector 0, then of vector 1. The address for vectors 2 d and 2 d + 1 is this one ^
// VectorPair(d) if rows begin at a multiple of 256 bytes.
template <int kRowBytes>
__device__ __forceinline__ uint32_t FragmentAddress(uint32_t rows) {
  const uint32_t lane = threadIdx.x % 32;
  return rows + SwizzledOffset<kRowBytes>(lane % 16, lane / 16);
}
__device__ constexpr uint32_t VectorPair(uint32_t d) { return d << 5; }

// Two neighbours of a row, the first in the low half.
template <typename T>
__device__ __forceinline__ uint32_t Pack(float low, float high);
template <>
__device__ __forceinline__ uint32_t Pack<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}
template <>
__device__ __forceinline__ uint32_t Pack<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// 2^x; 0 at -inf.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x within one unit in the last place, in one instruction: a correctly rounded one is a call.
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A factor of scores: one for all rows, or one for each of a lane's two rows of queries.
struct RowFactors {
  float of_row[2];
};
__device__ __forceinline__ float FactorOf(float factor, int) { return factor; }
__device__ __forceinline__ float FactorOf(const RowFactors& factors, int row) {
  return factors.of_row[row];
}

// Soft cap: cap_log2 * tanh(s * factor * ln(2) / 2), from 1 - 2 / (1 + e^2x) = tanh(x). The
// hardware's own tanh is off by 2^-11, which an exponential would make a per cent. Four scores
// of a row share one reciprocal, that of their product, which the bound of 2^30 keeps finite. So
// the caller first masks what the row does not see: its bits must not depend on that. A score of
// NaN counts as that bound: a sequence whose own keys are NaN has values of NaN too.
template <int kBlocks, typename Factor>
__device__ __forceinline__ void CapScores(float (&s)[kBlocks][4], const Factor& factor,
                                          float cap_log2) {
  static_assert(kBlocks % 2 == 0);
#pragma unroll
  for (int b = 0; b < kBlocks; b += 2) {
#pragma unroll
    for (int row = 0; row < 4; row += 2) {
      float x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float score = s[b + i / 2][row + i % 2] * FactorOf(factor, row / 2);
        x[i] = 1.0f + Exp2(fminf(score, 30.0f));
      }
      const float low = x[0] * x[1], high = x[2] * x[3];
      const float inverse = Reciprocal(low * high) * (-2.0f * cap_log2);
      const float of_low = inverse * high, of_high = inverse * low;
      s[b][row] = fmaf(of_low, x[1], cap_log2);
      s[b][row + 1] = fmaf(of_low, x[0], cap_log2);
      s[b + 1][row] = fmaf(of_high, x[3], cap_log2);
      s[b + 1][row + 1] = fmaf(of_high, x[2], cap_log2);
    }
  }
}

// The value to subtract before the exponential. Where a row sees no token yet, -inf - -inf would be
// NaN.
__device__ __forceinline__ float FiniteTop(float top) { return top == -INFINITY ? 0.0f : top; }

// Maximum and sum over the four lanes that hold a row of an accumulator.
__device__ __forceinline__ float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float QuadSum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// A warp's running softmax over 16 rows: o as accumulator fragments of D / 8 column blocks; top in
// units of log2; sum of this lane's columns alone. Index 0 is row lane / 4, index 1 the row 8
// below.
template <int D>
struct RunningRows {
  float o[D / 8][4];
  float top[2], sum[2];

  __device__ __forceinline__ void Reset() {
#pragma unroll
    for (auto& block : o) {
#pragma unroll
      for (float& x : block) x = 0.0f;
    }
    top[0] = top[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
  }

  // Adds kBlocks * 8 scores a row, in three steps that other work may separate. First: raises top
  // and returns the factors for Scale.
  template <int kBlocks, typename Factor>
  __device__ __forceinline__ void RaiseTop(const float (&s)[kBlocks][4], const Factor& scale_log2,
                                           float (&factor)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top_here = fmaxf(s[0][2 * r], s[0][2 * r + 1]);
#pragma unroll
      for (int b = 1; b < kBlocks; ++b) {
        top_here = fmaxf(top_here, fmaxf(s[b][2 * r], s[b][2 * r + 1]));
      }
      const float next = fmaxf(top[r], QuadMax(top_here) * FactorOf(scale_log2, r));
      factor[r] = Exp2(top[r] - FiniteTop(next));
      top[r] = next;
      sum[r] *= factor[r];
    }
  }

  // Second: turns the scores into weights and adds them to sum.
  template <int kBlocks, typename Factor>
  __device__ __forceinline__ void Weigh(float (&s)[kBlocks][4], const Factor& scale_log2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float base = FiniteTop(top[r]), scale = FactorOf(scale_log2, r);
      float sum_here = 0.0f;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        s[b][2 * r] = Exp2(fmaf(s[b][2 * r], scale, -base));
        s[b][2 * r + 1] = Exp2(fmaf(s[b][2 * r + 1], scale, -base));
        sum_here += s[b][2 * r] + s[b][2 * r + 1];
      }
      sum[r] += sum_here;
    }
  }

  // Third: multiplies o by the factors. A factor of one changes no bit, so a warp whose factors are
  // all one skips the products.
  __device__ __forceinline__ void Scale(const float (&factor)[2]) {
    if (!__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
    for (auto& block : o) {
      block[0] *= factor[0];
      block[1] *= factor[0];
      block[2] *= factor[1];
      block[3] *= factor[1];
    }
  }
};

// The weights of 16 tokens, columns 2 t and 2 t + 1 of eight, as the left operand of a product.
template <typename T, int kBlocks>
__device__ __forceinline__ void PackWeights(const float (&s)[kBlocks][4], int t, uint32_t (&p)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    p[i] = Pack<T>(s[2 * t + i / 2][i % 2 * 2], s[2 * t + i / 2][i % 2 * 2 + 1]);
  }
}

}  // namespace quire::cuda
