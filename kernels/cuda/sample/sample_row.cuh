// A row of logits in the shared memory of a cluster, one slice of the vocabulary a block, and the
// messages between the blocks. Sums are of integers and maxima of integer keys, so a result depends
// neither on the number of blocks nor on the order of their messages.
#pragma once

#include "kernels/cuda/device/cluster.cuh"
#include "kernels/cuda/rows/row_math.cuh"
#include "kernels/cuda/sample/sample_search.cuh"
#include "kernels/sampling.h"

namespace quire::cuda {

inline constexpr int kMaxCluster = 16;
// Slices are whole pairs of the 64-token blocks that share random counters.
inline constexpr int kSliceUnit = 128;

// Extremes: facts about logits before scaling.
struct Extremes {
  uint64_t best;  // Scored modified logit: the largest, and its lowest token
  float raw_top;  // largest logit before modification
  uint32_t bad;   // 1 if any logit is NaN or +infinity
};

// Masses: a block's or thread's part of the row's sums.
struct Masses {
  uint64_t raw;     // of the raw logits
  uint64_t scaled;  // of the tokens to draw from
};

// Verdict: a block's last message to the first block.
struct Verdict {
  uint64_t raw_mass;
  uint64_t best;  // Scored draw
};

// A token to draw from.
struct Candidate {
  float z;
  int32_t token;
};

// A block's tokens [first, first + size). Values past the end of the vocabulary are -infinity.
struct Slice {
  const float* row;  // the whole row, in device memory
  int32_t first, size, vocab;
};

// One value for each block of the cluster, and for each warp of this one.
template <typename T>
using OfBlocks = T[kMaxCluster];
template <typename T>
using OfWarps = T[kSampleWarps];

// Shared memory of a block. Other blocks write only to the first block's, unless a comment says
// otherwise.
struct alignas(16) SampleShared {
  SampleJob job;
  Slice slice;
  bool modified;                      // biases, bans or penalties modify the row
  bool has_mask;                      // the row's late mask has come; from the first block, in all
  int32_t repeatable;                 // known tokens since the last breaker of DRY, to its most
  Extremes extremes;                  // of the row, once its logits are read
  Masses masses;                      // of the slice
  OfBlocks<Extremes> block_extremes;  // every block's
  OfBlocks<Masses> block_masses;
  OfBlocks<Verdict> verdicts;
  OfWarps<Extremes> warp_extremes;
  OfWarps<Masses> warp_masses;
  OfWarps<uint64_t> warp_best;
  OfBlocks<Sums> block_sums;  // every block's
  OfWarps<Sums> warp_sums;
  // Mailboxes of the slice's logits; all blocks' extremes; the bins and masses of a count (one turn
  // a count, every warp of the cluster a party); the first block's orders (one turn a count); the
  // few candidates; all verdicts.
  Mailbox slice_box, extremes_box, counts_box, orders_box, few_box, verdicts_box;
  Orders orders;  // every block's
  Search search;
  Crossing found;
  Orders next;     // the first block's next orders
  bool behind;     // the edge lies in the counted bins or past them
  uint32_t floor;  // Ordered score that a token of the slice reaches
  uint32_t num_few;
  uint32_t edge_bin;                 // of FindEdge: the bin with the edge,
  uint64_t edge_before;              // and the weight before it
  alignas(16) uint32_t bins[kBins];  // tokens of the slice
  union {
    alignas(16) uint32_t row_bins[kBins];  // tokens of the row; zero when the few are gathered
    struct {
      Candidate candidate[kFew];
      uint64_t mass[kFew];
    } few;
    uint64_t weights[kBins / 2];  // of FindEdge; other blocks read them
  };
};

// This block's shared memory. The slice's values lie after it: modified logits, later scaled.
__device__ __forceinline__ SampleShared& Shared() {
  extern __shared__ uint4 sample_memory[];
  return *reinterpret_cast<SampleShared*>(sample_memory);
}
__device__ __forceinline__ float* Values() { return reinterpret_cast<float*>(&Shared() + 1); }
__device__ __forceinline__ float4& FourAt(int i) {
  return *reinterpret_cast<float4*>(Values() + i);
}

// Combine the values of a warp's lanes; every lane gets the result.
__device__ __forceinline__ uint64_t OverWarp(uint64_t best) { return WarpLargest(best); }
__device__ __forceinline__ Masses OverWarp(const Masses& mine) {
  return {WarpTotal(mine.raw), WarpTotal(mine.scaled)};
}
__device__ __forceinline__ Verdict OverWarp(const Verdict& mine) {
  return {WarpTotal(mine.raw_mass), WarpLargest(mine.best)};
}
__device__ __forceinline__ Sums OverWarp(const Sums& mine) {
  return {WarpTotal(mine.count), WarpTotal(mine.first), WarpTotal(mine.second),
          WarpLargest(mine.most)};
}
__device__ __forceinline__ Extremes OverWarp(const Extremes& mine) {
  return {WarpLargest(mine.best), WarpTop(mine.raw_top),
          __any_sync(kAllLanes, mine.bad != 0) ? 1u : 0u};
}
// The value of a lane that takes no part.
__device__ __forceinline__ Extremes Nothing(const Extremes*) { return {0, -kInfinity, 0}; }
template <typename T>
__device__ __forceinline__ T Nothing(const T*) {
  return T{};
}
template <typename T>
__device__ __forceinline__ T OverTable(const T* table, uint32_t count) {
  const uint32_t lane = threadIdx.x % 32;
  return OverWarp(lane < count ? table[lane] : Nothing(table));
}
// Combines the values of all threads of the block in `room`. A barrier must come before the next
// use of `room`.
template <typename T>
__device__ __forceinline__ T OverBlock(const T& mine, OfWarps<T>& room) {
  const T of_warp = OverWarp(mine);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = of_warp;
  __syncthreads();
  return OverTable(room, kSampleWarps);
}

// Four raw logits from `token` on; -infinity past the end of the vocabulary.
template <bool kAligned>
__device__ __forceinline__ float4 RawFour(const Slice& slice, int32_t token) {
  float4 four = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
  const float* from = slice.row + token;
  if constexpr (kAligned) {
    if (token < slice.vocab) four = *reinterpret_cast<const float4*>(from);
  } else {
    if (token < slice.vocab) four.x = from[0];
    if (token + 1 < slice.vocab) four.y = from[1];
    if (token + 2 < slice.vocab) four.z = from[2];
    if (token + 3 < slice.vocab) four.w = from[3];
  }
  return four;
}

// Calls fn(i) for each group of four values of this thread; i is the first.
template <typename Fn>
__device__ __forceinline__ void EachFour(Fn fn) {
  const int size = Shared().slice.size;
  for (int i = threadIdx.x * 4; i < size; i += kSampleThreads * 4) fn(i);
}
__device__ __forceinline__ float4 operator-(const float4& a, float b) {
  return {a.x - b, a.y - b, a.z - b, a.w - b};
}
__device__ __forceinline__ float Largest(const float4& a) {
  return fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w));
}
// Calls fn(value, j) for each of the four, j = 0 to 3.
template <typename Fn>
__device__ __forceinline__ void EachOf(const float4& four, Fn fn) {
  fn(four.x, 0);
  fn(four.y, 1);
  fn(four.z, 2);
  fn(four.w, 3);
}

// Reads the slice's logits into shared memory: by one bulk copy, or each thread its own.
template <bool kAligned>
__device__ __forceinline__ void FetchSlice() {
  const Slice slice = Shared().slice;
  const int count = max(min(slice.vocab - slice.first, slice.size), 0);
  if constexpr (kAligned) {
    if (threadIdx.x == 0) {
      const uint32_t bytes = count * uint32_t{sizeof(float)};
      Shared().slice_box.Expect(bytes);
      if (bytes > 0) Shared().slice_box.Copy(Values(), slice.row + slice.first, bytes);
    }
    if (count < slice.size) {
      EachFour([&](int i) {
        if (i >= count) FourAt(i) = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
      });
    }
    Shared().slice_box.Await(0);
  } else {
    EachFour([&](int i) { FourAt(i) = RawFour<false>(slice, slice.first + i); });
  }
}

}  // namespace quire::cuda
