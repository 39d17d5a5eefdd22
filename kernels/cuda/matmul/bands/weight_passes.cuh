// RowShare and RowPass: how a product of few tokens divides the rows of its weights, in bands of 16
// rows, among blocks and over time; the copies that read them once; and PredecessorFlag, by which
// they begin with few before the predecessor has ended.
#pragma once

#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/cuda/device/shared_memory.cuh"

namespace quire::cuda {

// The bands of one block, cut into passes of at most `most` bands whose sizes differ by at most
// one: in a pass of one band the activations would delay the weights.
struct RowShare {
  int begin, end;
  int pass_bands, larger_passes;  // the first `larger_passes` have one band more

  __device__ RowShare(int bands, int most)
      : begin(static_cast<int64_t>(bands) * blockIdx.x / gridDim.x),
        end(static_cast<int64_t>(bands) * (blockIdx.x + 1) / gridDim.x) {
    const int passes = CeilDiv(end - begin, most);
    pass_bands = (end - begin) / passes;
    larger_passes = (end - begin) % passes;
  }
};

// A pass of a share. Past the last pass, `begin` is the share's end.
struct RowPass {
  int begin, bands, larger_left;

  __device__ explicit RowPass(const RowShare& share)
      : begin(share.begin),
        bands(share.pass_bands + (share.larger_passes > 0)),
        larger_left(share.larger_passes) {}
  __device__ __forceinline__ void Advance(const RowShare& share) {
    begin += bands;
    --larger_left;
    bands = share.pass_bands + (larger_left > 0);
  }
};

// Tells the warps of a block whether the predecessor has ended. Lies in shared memory.
struct PredecessorFlag {
  uint64_t ended;

  // By one thread, before a barrier of the block.
  __device__ void Clear() { Ended().Init(1); }
  // By one thread that has waited for the predecessor.
  __device__ void Set() { Ended().Arrive(); }
  // The lanes of a warp may get different answers.
  __device__ __forceinline__ bool IsSet() const { return Ended().IsOverNow(0); }

 private:
  __device__ __forceinline__ Barrier Ended() const { return {SharedAddress(&ended)}; }
};

__device__ __forceinline__ uint64_t EvictFirst() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Copies the first `bytes` of 16 bytes and writes zeros behind them. A miss fetches the whole line
// of 128 bytes: memory is read in larger pieces than the part of a row that one copy of a warp
// covers.
__device__ __forceinline__ void CopyOnce(uint32_t to, const void* from, int bytes,
                                         uint64_t policy) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to),
      "l"(from), "r"(bytes), "l"(policy)
      : "memory");
}

}  // namespace quire::cuda
