// Eight: eight elements of any type as floats, the unit of the row kernels. Packed: the same in
// memory. SumOfLanes: a sum over part of a warp. DeviceCheck: CHECK in device code.
#pragma once

#include "kernels/cuda/device/device_math.cuh"

namespace quire::cuda {

// Eight consecutive elements.
struct Eight {
  float at[8];
};

// The same in memory: 16 bytes of bf16 or f16, 32 of f32.
template <typename T>
struct Packed {
  Vector<T> part[8 / Vector<T>::kSize];
};

template <typename T>
__device__ __forceinline__ Packed<T> LoadPacked(const T* from) {
  Packed<T> packed;
#pragma unroll
  for (int i = 0; i < 8 / Vector<T>::kSize; ++i) packed.part[i] = Load(from + i * Vector<T>::kSize);
  return packed;
}
template <typename T>
__device__ __forceinline__ void StorePacked(T* to, const Packed<T>& packed) {
#pragma unroll
  for (int i = 0; i < 8 / Vector<T>::kSize; ++i) Store(to + i * Vector<T>::kSize, packed.part[i]);
}

template <typename T>
__device__ __forceinline__ Eight Unpack(const Packed<T>& packed) {
  constexpr int kSize = Vector<T>::kSize;
  Eight eight;
#pragma unroll
  for (int i = 0; i < 8; ++i) eight.at[i] = ToFloat(packed.part[i / kSize].at[i % kSize]);
  return eight;
}
// A bf16 is the upper half of a float: one instruction each.
template <>
__device__ __forceinline__ Eight Unpack(const Packed<__nv_bfloat16>& packed) {
  const uint4 words = *reinterpret_cast<const uint4*>(&packed);
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
  Eight eight;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    eight.at[2 * i] = __uint_as_float(word[i] << 16);
    eight.at[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
  }
  return eight;
}
template <typename T>
__device__ __forceinline__ Packed<T> Pack(const Eight& eight) {
  constexpr int kSize = Vector<T>::kSize;
  Packed<T> packed;
#pragma unroll
  for (int i = 0; i < 8; ++i) packed.part[i / kSize].at[i % kSize] = FromFloat<T>(eight.at[i]);
  return packed;
}

template <typename T>
__device__ __forceinline__ Eight LoadEight(const T* from) {
  return Unpack(LoadPacked(from));
}
template <typename T>
__device__ __forceinline__ void StoreEight(T* to, const Eight& eight) {
  StorePacked(to, Pack<T>(eight));
}

// x rounded to T.
template <typename T>
__device__ __forceinline__ float Rounded(float x) {
  return ToFloat(FromFloat<T>(x));
}

// Sum over each `lanes` neighbouring lanes of a warp, a power of two, the same bits in each of
// them.
__device__ __forceinline__ float SumOfLanes(float x, int lanes) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
}

// Ends the kernel, and with it the process, if an invariant of the step's plan is broken.
__device__ __forceinline__ void DeviceCheck(bool holds) {
  if (!holds) __trap();
}

}  // namespace quire::cuda
