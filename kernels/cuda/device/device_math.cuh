// Basics of device code: element types, 16-byte vectors, a sum over a warp, and the two
// instructions of programmatic dependent launch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace quire::cuda {

// PdlWait waits until the kernel before this one has ended and its writes are visible. PdlTrigger
// lets the next kernel start; it makes no write visible. launch.h has the rules.
__device__ __forceinline__ void PdlWait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void PdlTrigger() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ float ToFloat(float x) { return x; }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float ToFloat(__half x) { return __half2float(x); }

template <typename T>
__device__ __forceinline__ T FromFloat(float x);
template <>
__device__ __forceinline__ float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 FromFloat<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half FromFloat<__half>(float x) {
  return __float2half_rn(x);
}

// 16 bytes of consecutive elements.
template <typename T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T at[kSize];
};

template <typename T>
__device__ __forceinline__ Vector<T> Load(const T* from) {
  return *reinterpret_cast<const Vector<T>*>(from);
}
template <typename T>
__device__ __forceinline__ void Store(T* to, const Vector<T>& value) {
  *reinterpret_cast<Vector<T>*>(to) = value;
}

// Largest value of the 32 lanes, in each; NaN counts as none.
__device__ __forceinline__ float WarpMax(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
  }
  return x;
}

// Sum over the 32 lanes, the same bits in each, in an order fixed by the lane numbers.
__device__ __forceinline__ float WarpSum(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
}

}  // namespace quire::cuda
