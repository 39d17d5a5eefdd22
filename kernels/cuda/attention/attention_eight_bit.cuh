// Attention over 8-bit keys and values: both widen to f16, exactly, for products in f16, and rows
// of queries become f16 of a size that f16 holds.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/device/warp_tile.cuh"

namespace quire::cuda {

// The type of the products' operands.
template <typename T, typename H>
using Operand = std::conditional_t<H::kEightBitKv, __half, T>;

// Two neighbouring elements of a query.
template <typename T>
__device__ __forceinline__ float2 Unpack(uint32_t pair);
template <>
__device__ __forceinline__ float2 Unpack<__nv_bfloat16>(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}
template <>
__device__ __forceinline__ float2 Unpack<__half>(uint32_t pair) {
  return __half22float2(reinterpret_cast<const __half2&>(pair));
}

template <typename T>
__device__ __forceinline__ float Larger(float largest, uint32_t pair) {
  const float2 x = Unpack<T>(pair);
  return fmaxf(largest, fmaxf(fabsf(x.x), fabsf(x.y)));
}

// QueryScale: the power of two at or below a row's largest element, `power`, and its inverse. Times
// the inverse the largest element is in [1, 2): then f16 holds all elements of f16, and all of bf16
// but for 2^-25 of the row's largest. The bounds keep both powers finite.
struct QueryScale {
  float power, inverse;

  __device__ __forceinline__ explicit QueryScale(float largest) {
    constexpr uint32_t kStep = 1u << 23;  // of the exponent
    const uint32_t exponent = __float_as_uint(largest) & 255 * kStep;
    const uint32_t bounded = min(max(exponent, kStep), 253 * kStep);
    power = __uint_as_float(bounded);
    inverse = __uint_as_float(254 * kStep - bounded);
  }
  template <typename T>
  __device__ __forceinline__ uint32_t Scaled(uint32_t pair) const {
    const float2 x = Unpack<T>(pair);
    const __half2 scaled = __floats2half2_rn(x.x * inverse, x.y * inverse);
    return reinterpret_cast<const uint32_t&>(scaled);
  }
  // The factor of the row's scores. It is never 0, because a token that the row does not see has a
  // score of -infinity.
  __device__ __forceinline__ float Factor(float k_scale) const {
    return fmaxf(power * k_scale, 0x1p-126f);
  }
};

// The factor of a head's values.
template <typename H>
__device__ __forceinline__ float ValueScale(const AttentionArgs& a, int head) {
  if constexpr (H::kEightBitKv) return a.v_scales[head];
  return 1.0f;
}

}  // namespace quire::cuda
