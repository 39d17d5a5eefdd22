// The numbers of the sampler on the device: masses, and keys whose integer order is the order of
// what they stand for, so that maxima and sums over threads need no order of their own.
#pragma once

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/exact_math.cuh"

namespace quire::cuda {

inline constexpr uint32_t kAllLanes = 0xffffffffu;
inline constexpr float kInfinity = __builtin_inff();

// Mass of a token with scaled logit z <= 0. Below -40 it is 0, and e^-40 is 0 in these units too,
// so nothing smaller need be told apart.
__device__ __forceinline__ uint64_t MassOf(float z) {
  return static_cast<uint64_t>(ExactExp(fmaxf(z, -40.0f)) * 0x1p40f);
}

// z <= 0 as an integer that grows as z falls; equal for equal z.
__device__ __forceinline__ uint32_t KeyOf(float z) { return __float_as_uint(z) & 0x7fffffffu; }
__device__ __forceinline__ float FromKey(uint32_t key) { return -__uint_as_float(key); }
inline constexpr uint32_t kLastKey = 0x7f800000u;  // of -infinity

// Any float but NaN as an integer of the same order; both zeros give the same.
__device__ __forceinline__ uint32_t Ordered(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}
__device__ __forceinline__ float FromOrdered(uint32_t ordered) {
  return __uint_as_float(ordered ^ (ordered >> 31 != 0 ? 0x80000000u : 0xffffffffu));
}

// A token with its score: the largest is the best score's lowest token.
__device__ __forceinline__ uint64_t Scored(float score, uint32_t token) {
  return uint64_t{Ordered(score)} << 32 | static_cast<uint32_t>(~token);
}
__device__ __forceinline__ uint32_t TokenOf(uint64_t scored) {
  return ~static_cast<uint32_t>(scored);
}
__device__ __forceinline__ float ScoreOf(uint64_t scored) {
  return FromOrdered(static_cast<uint32_t>(scored >> 32));
}

__device__ __forceinline__ uint64_t Larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

__device__ __forceinline__ uint64_t WarpLargest(uint64_t x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x = Larger(x, __shfl_xor_sync(kAllLanes, x, distance));
  }
  return x;
}
__device__ __forceinline__ uint64_t WarpTotal(uint64_t x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}

}  // namespace quire::cuda
