// StoreEightBit: a row of floats in the registers of a block becomes 8-bit elements and a scale
// (kernels/row_scale.h).
#pragma once

#include <cuda_fp8.h>

#include <type_traits>

#include "kernels/cuda/rows/block_row.cuh"
#include "kernels/row_scale.h"

namespace quire::cuda {

// The largest of the block's threads' values, in each; NaN counts as none. A barrier must stand
// between two calls.
__device__ __forceinline__ float BlockMax(float x) {
  __shared__ float of_warp[kMaxNormThreads / 32];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  x = WarpMax(x);
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();
  return WarpMax(lane < blockDim.x / 32 ? of_warp[lane] : 0.0f);
}

template <typename T>
inline constexpr bool kEightBit = std::is_same_v<T, __nv_fp8_e4m3>;

// Eight elements of 8 bits.
__device__ __forceinline__ uint2 PackEightBit(const Eight& x, float inverse) {
  uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float2 low = {x.at[4 * i] * inverse, x.at[4 * i + 1] * inverse};
    const float2 high = {x.at[4 * i + 2] * inverse, x.at[4 * i + 3] * inverse};
    words[i] = __nv_cvt_float2_to_fp8x2(low, __NV_SATFINITE, __NV_E4M3) |
               uint32_t{__nv_cvt_float2_to_fp8x2(high, __NV_SATFINITE, __NV_E4M3)} << 16;
  }
  return {words[0], words[1]};
}

// Stores a row of `width` elements and its scale. This thread's i-th eight lies at RowOffset(i);
// elements past the row are zeros. All threads of the block must call it.
template <int kEights>
__device__ __forceinline__ void StoreEightBit(const Eight (&x)[kEights], int width,
                                              __nv_fp8_e4m3* out, float* scale) {
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) largest = fmaxf(largest, fabsf(x[i].at[j]));
  }
  const RowScale row = RowScaleFor(BlockMax(largest));
  if (threadIdx.x == 0) *scale = row.scale;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = RowOffset(i);
    if (at < width) *reinterpret_cast<uint2*>(out + at) = PackEightBit(x[i], row.inverse);
  }
}

}  // namespace quire::cuda
