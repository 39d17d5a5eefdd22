// A row of logits in the shared memory of a cluster of blocks, each with a slice of the vocabulary,
// and what the blocks tell each other. Sums are of integers and maxima of integer keys, so neither
// the number of blocks nor the order in which they answer shows in a result.
#pragma once

#include <cooperative_groups.h>

#include "kernels/cuda/row_math.cuh"
#include "kernels/cuda/sample_search.cuh"
#include "kernels/ops.h"

namespace quire::cuda {

inline constexpr int kMaxCluster = 16;
// Slices are whole pairs of the 64-token blocks that share random counters.
inline constexpr int kSliceUnit = 128;

// What is known of logits before they are scaled.
struct Extremes {
  uint64_t best;  // Scored logit as modified: the top and its lowest token
  float raw_top;  // largest logit before modification
  uint32_t bad;   // whether any logit is NaN or +infinity
};

// A block's tokens [first, first + size); those from the vocabulary's end on stand at -infinity.
struct Slice {
  const float* row;  // the whole row, in device memory
  float* values;     // [size] in shared memory: logits as modified, later scaled
  int32_t first, size, vocab;
};

// What all threads know of their row.
struct Row {
  Slice slice;
  bool modified;      // by biases, bans or penalties
  Extremes extremes;  // of the whole row, once its logits are read
};

// One value for each block of the cluster, and for each warp of this one.
template <typename T>
using OfBlocks = T[kMaxCluster];
template <typename T>
using OfWarps = T[kSampleWarps];

// Shared memory of a block, before its slice. Other blocks write to the first block's only, except
// where said.
struct alignas(16) SampleShared {
  SampleJob job;
  Row row;
  OfBlocks<Extremes> extremes;  // every block's
  OfBlocks<uint64_t> raw_mass, mass, drawn;
  OfWarps<Extremes> warp_extremes;
  OfWarps<uint64_t> warp_raw_mass, warp_mass, warp_drawn;
  Orders orders;  // every block's
  Search search;
  Crossing found;
  uint32_t floor;  // Ordered score that some token of the slice reaches
  uint32_t num_few;
  uint32_t bins[kBins];  // tokens of the slice
  union {
    uint32_t row_bins[kBins];  // tokens of the row; zero whenever the few are gathered
    struct {
      float z[kFew];
      int32_t token[kFew];
      uint64_t mass[kFew];
    } few;
  };
};

// The blocks of one row.
class Cluster {
 public:
  __device__ Cluster() : group_(cooperative_groups::this_cluster()) {}

  __device__ uint32_t rank() const { return group_.block_rank(); }
  __device__ uint32_t size() const { return group_.num_blocks(); }
  // Where `mine`, in this block's shared memory, lies in the memory of block `rank`.
  template <typename T>
  __device__ T* At(T* mine, uint32_t rank) const {
    return group_.map_shared_rank(mine, rank);
  }
  // A barrier of all threads of all blocks, whole or in halves.
  __device__ void Sync() const { group_.sync(); }
  __device__ void Arrive() { group_.barrier_arrive(); }
  __device__ void Wait() { group_.barrier_wait(); }
  // Puts this block's value into `table` of block `to`; one thread calls.
  template <typename T>
  __device__ void Tell(OfBlocks<T>& table, const T& value, uint32_t to) const {
    *At(&table[rank()], to) = value;
  }

 private:
  cooperative_groups::cluster_group group_;
};

// Sums and maxima over a table, the same in all lanes of a warp.
__device__ __forceinline__ uint64_t TotalOf(const uint64_t* table, uint32_t count) {
  return WarpTotal(threadIdx.x % 32 < count ? table[threadIdx.x % 32] : 0);
}
__device__ __forceinline__ uint64_t LargestOf(const uint64_t* table, uint32_t count) {
  return WarpLargest(threadIdx.x % 32 < count ? table[threadIdx.x % 32] : 0);
}
__device__ __forceinline__ Extremes OverWarp(const Extremes& mine) {
  return {WarpLargest(mine.best), WarpMax(mine.raw_top),
          __any_sync(kAllLanes, mine.bad != 0) ? 1u : 0u};
}
__device__ __forceinline__ Extremes ExtremesOf(const Extremes* table, uint32_t count) {
  return OverWarp(threadIdx.x % 32 < count ? table[threadIdx.x % 32] : Extremes{0, -kInfinity, 0});
}

// The same over the block's threads, by way of `room`; its next user must be a barrier away.
__device__ __forceinline__ uint64_t BlockTotal(uint64_t mine, OfWarps<uint64_t>& room) {
  mine = WarpTotal(mine);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
  __syncthreads();
  return TotalOf(room, kSampleWarps);
}
__device__ __forceinline__ uint64_t BlockLargest(uint64_t mine, OfWarps<uint64_t>& room) {
  mine = WarpLargest(mine);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
  __syncthreads();
  return LargestOf(room, kSampleWarps);
}
__device__ __forceinline__ Extremes OverBlock(Extremes mine, OfWarps<Extremes>& room) {
  mine = OverWarp(mine);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
  __syncthreads();
  return ExtremesOf(room, kSampleWarps);
}

// What modifies a token's logit, marked in the place of its value until that is read. From bit 0:
// whether it was seen in prompt or output; 19 bits, how often in the output; 11 bits, its place in
// the bias list from 1; whether it is banned.
inline constexpr uint32_t kSeen = 1, kSeenInOutput = 2, kSeenMask = (1u << 20) - 1;
inline constexpr uint32_t kBiasShift = 20, kBiasMask = 2047, kBanned = 1u << 31;

__device__ __forceinline__ bool HasPenalties(const SampleRow& row) {
  return row.repetition_penalty != 1.0f || row.presence_penalty != 0.0f ||
         row.frequency_penalty != 0.0f;
}
__device__ __forceinline__ bool IsModified(const SampleJob& job) {
  return job.num_bias > 0 || job.num_banned > 0 || (HasPenalties(job.params) && job.num_known > 0);
}

// Marks the row's tokens: each block takes a share of the lists and marks in whichever block has
// the token.
__device__ __noinline__ inline void MarkTokens(const Cluster& cluster, SampleShared& shared) {
  const SampleJob& job = shared.job;
  const Slice slice = shared.row.slice;
  auto* marks = reinterpret_cast<uint32_t*>(slice.values);
  for (int i = threadIdx.x; i < slice.size; i += kSampleThreads) marks[i] = 0;
  cluster.Sync();
  const auto place = [&](int32_t token) {
    DeviceCheck(token >= 0 && token < slice.vocab);
    return cluster.At(&marks[token % slice.size], token / slice.size);
  };
  const int begin = cluster.rank() * kSampleThreads + threadIdx.x;
  const int step = cluster.size() * kSampleThreads;
  DeviceCheck(job.num_bias <= static_cast<int>(kBiasMask) && job.num_known < 1 << 19);
  for (int i = begin; i < job.num_bias; i += step) {
    atomicAdd(place(job.bias[i].token), static_cast<uint32_t>(i + 1) << kBiasShift);
  }
  for (int i = begin; i < job.num_banned; i += step) atomicOr(place(job.banned[i]), kBanned);
  for (int i = begin; HasPenalties(job.params) && i < job.num_known; i += step) {
    uint32_t* const mark = place(job.tokens[i]);
    if (i < job.num_prompt) {
      atomicOr(mark, kSeen);
    } else {
      atomicAdd(mark, kSeenInOutput);
    }
  }
  cluster.Sync();
}

// The logit after bias, bans and penalties, rounded as on the CPU.
__device__ inline float Modified(float logit, uint32_t mark, const SampleJob& job) {
  if (mark == 0) return logit;
  const uint32_t bias = mark >> kBiasShift & kBiasMask;
  if (bias != 0) logit += job.bias[bias - 1].bias;
  if ((mark & kBanned) != 0) logit = -kInfinity;
  const uint32_t seen = mark & kSeenMask;
  if (seen == 0) return logit;
  const SampleRow& row = job.params;
  logit = logit > 0.0f ? logit / row.repetition_penalty : logit * row.repetition_penalty;
  if (seen < kSeenInOutput) return logit;
  logit -= row.frequency_penalty * static_cast<float>(seen / kSeenInOutput);
  return logit - row.presence_penalty;
}

// Four raw logits from `token` on, -infinity behind the vocabulary's end.
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

// Starts copying four logits to shared memory, where the vocabulary has ended -infinity.
template <bool kAligned>
__device__ __forceinline__ void FetchFour(const Slice& slice, int i) {
  const int32_t token = slice.first + i;
  constexpr int kWords = kAligned ? 4 : 1;
#pragma unroll
  for (int j = 0; j < 4; j += kWords) {
    float* to = slice.values + i + j;
    if (token + j < slice.vocab) {
      const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
      if constexpr (kAligned) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(slice.row + token));
      } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at),
                     "l"(slice.row + token + j));
      }
    } else {
#pragma unroll
      for (int k = 0; k < kWords; ++k) to[k] = -kInfinity;
    }
  }
}
__device__ __forceinline__ void AwaitFetched() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Calls fn(i) for the first of each four values that are this thread's.
template <typename Fn>
__device__ __forceinline__ void EachFour(const Slice& slice, Fn fn) {
  for (int i = threadIdx.x * 4; i < slice.size; i += kSampleThreads * 4) fn(i);
}
__device__ __forceinline__ float4& FourAt(const Slice& slice, int i) {
  return *reinterpret_cast<float4*>(slice.values + i);
}
__device__ __forceinline__ float4 operator-(const float4& a, float b) {
  return {a.x - b, a.y - b, a.z - b, a.w - b};
}
// Calls fn(value, j) for each of the four, j = 0 to 3.
template <typename Fn>
__device__ __forceinline__ void EachOf(const float4& four, Fn fn) {
  fn(four.x, 0);
  fn(four.y, 1);
  fn(four.z, 2);
  fn(four.w, 3);
}

}  // namespace quire::cuda
