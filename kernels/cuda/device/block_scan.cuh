// SumBefore: the exclusive sum over the threads of a block.
#pragma once

#include <cub/block/block_scan.cuh>

namespace quire::cuda {

// Returns the sum of `mine` over the threads before this one; `total` gets the sum over all. T is
// an integer or a struct of them with an operator+, so the order of additions does not show. All
// kThreads threads of the block must call it.
template <int kThreads, typename T>
__device__ __forceinline__ T SumBefore(const T& mine, T* total) {
  using Scan = cub::BlockScan<T, kThreads, cub::BLOCK_SCAN_WARP_SCANS>;
  __shared__ typename Scan::TempStorage room;
  T before;
  Scan(room).ExclusiveSum(mine, before, *total);
  __syncthreads();  // the next call may write to the room
  return before;
}

}  // namespace quire::cuda
