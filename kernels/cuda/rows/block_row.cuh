// A row by one block, eight elements a thread at a time: the offsets of a thread's elements and the
// sum over the block.
#pragma once

#include "kernels/cuda/rows/row_math.cuh"

namespace quire::cuda {

inline constexpr int kMaxNormThreads = 1024;

// This thread's i-th eight elements of the row: every kEights-th part of the row, in turn.
__device__ __forceinline__ int RowOffset(int i) {
  return static_cast<int>((i * blockDim.x + threadIdx.x) * 8);
}

// The sum over the block's threads, the same bits in each. A barrier must stand between two sums.
__device__ __forceinline__ float BlockSum(float x) {
  __shared__ float of_warp[kMaxNormThreads / 32];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  x = WarpSum(x);
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();
  return WarpSum(lane < blockDim.x / 32 ? of_warp[lane] : 0.0f);
}

}  // namespace quire::cuda
