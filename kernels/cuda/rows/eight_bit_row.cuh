// StoreEightBit: a row of floats in the registers of a block becomes 8-bit elements with a scale,
// or with one for each run of kScaleRun columns (kernels/row_scale.h).
#pragma once

#include <cuda_fp8.h>

#include <type_traits>

#include "kernels/cuda/rows/block_row.cuh"
#include "kernels/row_scale.h"
#include "kernels/tensor.h"

namespace quire::cuda {

// The scales of an 8-bit result, as its view has them.
struct RowScales {
  float* first;    // of row 0; null: the result is not 8-bit
  int64_t stride;  // from a run of columns to the next
  bool of_runs;    // false: a row has one scale
};

inline RowScales ScalesOf(const TensorView& out) {
  const bool runs = out.dtype == DType::kE4M3 && out.scale_columns == kScaleRun;
  CHECK(out.scale_rows == 1 && (out.scale_columns == 0 || runs));
  return {out.scales, out.scale_stride, out.scale_columns != 0};
}

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
inline constexpr bool kIntegers = std::is_same_v<T, int8_t>;
template <typename T>
inline constexpr bool kEightBit = std::is_same_v<T, __nv_fp8_e4m3> || kIntegers<T>;

// Eight elements of 8 bits.
template <typename T>
__device__ __forceinline__ uint2 PackEightBit(const Eight& x, float inverse);
template <>
__device__ __forceinline__ uint2 PackEightBit<int8_t>(const Eight& x, float inverse) {
  uint32_t words[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int element = max(-128, min(127, __float2int_rn(x.at[i] * inverse)));  // 0 of NaN
    words[i / 4] |= (static_cast<uint32_t>(element) & 0xffu) << i % 4 * 8;
  }
  return {words[0], words[1]};
}
template <>
__device__ __forceinline__ uint2 PackEightBit<__nv_fp8_e4m3>(const Eight& x, float inverse) {
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

__device__ __forceinline__ float LargestOf(const Eight& x) {
  float largest = 0.0f;
#pragma unroll
  for (int j = 0; j < 8; ++j) largest = fmaxf(largest, fabsf(x.at[j]));
  return largest;
}
template <int kEights>
__device__ __forceinline__ bool HasNaN(const Eight (&x)[kEights]) {
  bool has = false;
#pragma unroll
  for (int i = 0; i < kEights * 8; ++i) has = has || isnan(x[i / 8].at[i % 8]);
  return has;
}

// Lanes that hold a run: RowOffset gives neighbouring lanes neighbouring eights, and whole warps
// begin at multiples of a run.
inline constexpr int kRunLanes = kScaleRun / 8;
static_assert(32 % kRunLanes == 0);

// The largest value of this lane's run, in each of its lanes.
__device__ __forceinline__ float RunMax(float x) {
#pragma unroll
  for (int distance = kRunLanes / 2; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
  }
  return x;
}

// The largest value of a row that one block holds.
struct MaxOfBlock {
  __device__ __forceinline__ float operator()(float x) const { return BlockMax(x); }
};

// Where a row goes, or a block's part of one.
template <typename T>
struct EightBitRow {
  T* out;
  int width;
  RowScales scales;  // null: not stored
  int64_t row;       // among the scales
};

// Stores a row and its scales. This thread's i-th eight lies at RowOffset(i); elements past the row
// are zeros. All threads of the block must call it. `max_of_row` finds the largest value of all
// threads that hold the row, of this one's.
template <typename T, int kEights, typename MaxOfRow = MaxOfBlock>
__device__ __forceinline__ void StoreEightBit(const Eight (&x)[kEights], const EightBitRow<T>& to,
                                              const MaxOfRow& max_of_row = {}) {
  const RowScales& scales = to.scales;
  constexpr float kMost = kIntegers<T> ? kI8Max : kE4M3Max;
  const bool of_runs = !kIntegers<T> && scales.of_runs;
  float largest[kEights], of_row = 0.0f;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    largest[i] = LargestOf(x[i]);
    of_row = fmaxf(of_row, largest[i]);
  }
  if (!of_runs) of_row = max_of_row(of_row);
  if constexpr (kIntegers<T>) {
    if (__syncthreads_or(HasNaN(x))) of_row = __int_as_float(0x7fffffff);
  }
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = RowOffset(i);
    const RowScale scale = RowScaleFor(of_runs ? RunMax(largest[i]) : of_row, kMost);
    if (at >= to.width) continue;
    *reinterpret_cast<uint2*>(to.out + at) = PackEightBit<T>(x[i], scale.inverse);
    if (scales.first == nullptr || at % (of_runs ? kScaleRun : to.width) != 0) continue;
    scales.first[(of_runs ? at / kScaleRun * scales.stride : 0) + to.row] = scale.scale;
  }
}

}  // namespace quire::cuda
