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

// What a warp finds in its part of the row.
struct Extremes {
  uint64_t best;  // Scored logit as modified: the top and its lowest token
  float raw_top;  // largest logit before modification
  uint32_t bad;   // whether any logit is NaN or +infinity
};

// One value for each warp of every block of the cluster.
template <typename T>
using OfWarps = T[kMaxCluster * kSampleWarps];

// Shared memory of a block, before its slice. Other blocks write to the first block's only, except
// where said.
struct SampleShared {
  SampleJob job;
  OfWarps<Extremes> extremes;  // every block's
  OfWarps<uint64_t> raw_mass, mass, drawn;
  uint32_t bins[kBins];      // tokens of the slice,
  uint32_t row_bins[kBins];  // and of the row
  Orders orders;             // every block's
  Search search;
  Crossing found;
  uint32_t floor;  // Ordered score that some token of the slice reaches
  uint32_t num_few;
  float few_z[kFew];
  int32_t few_token[kFew];
  uint64_t few_mass[kFew];
};

// A block's tokens [first, first + size); those from the vocabulary's end on stand at -infinity.
struct Slice {
  const float* row;  // the whole row, in device memory
  float* values;     // [size] in shared memory: logits as modified, later scaled
  int32_t first, size, vocab;
};

// The blocks of one row.
class Cluster {
 public:
  __device__ Cluster() : group_(cooperative_groups::this_cluster()) {}

  __device__ uint32_t rank() const { return group_.block_rank(); }
  __device__ uint32_t size() const { return group_.num_blocks(); }
  __device__ uint32_t num_warps() const { return size() * kSampleWarps; }
  // Where `mine`, in this block's shared memory, lies in the memory of block `rank`.
  template <typename T>
  __device__ T* At(T* mine, uint32_t rank) const {
    return group_.map_shared_rank(mine, rank);
  }
  // A barrier of all threads of all blocks, whole or in halves.
  __device__ void Sync() const { group_.sync(); }
  __device__ void Arrive() { group_.barrier_arrive(); }
  __device__ void Wait() { group_.barrier_wait(); }
  // Puts a warp's value into `table` of block `to`; one lane calls.
  template <typename T>
  __device__ void Tell(OfWarps<T>& table, const T& value, uint32_t to) const {
    *At(&table[rank() * kSampleWarps + threadIdx.x / 32], to) = value;
  }

 private:
  cooperative_groups::cluster_group group_;
};

// What the warps of all blocks told, together: the same in all lanes of a warp.
__device__ inline uint64_t TotalOf(const OfWarps<uint64_t>& table, uint32_t num_warps) {
  uint64_t sum = 0;
  for (uint32_t i = threadIdx.x % 32; i < num_warps; i += 32) sum += table[i];
  return WarpTotal(sum);
}
__device__ inline uint64_t LargestOf(const OfWarps<uint64_t>& table, uint32_t num_warps) {
  uint64_t largest = 0;
  for (uint32_t i = threadIdx.x % 32; i < num_warps; i += 32) largest = Larger(largest, table[i]);
  return WarpLargest(largest);
}
__device__ __forceinline__ Extremes OverWarp(const Extremes& mine) {
  return {WarpLargest(mine.best), WarpMax(mine.raw_top),
          __any_sync(kAllLanes, mine.bad != 0) ? 1u : 0u};
}
__device__ inline Extremes ExtremesOf(const OfWarps<Extremes>& table, uint32_t num_warps) {
  Extremes all = {0, -kInfinity, 0};
  for (uint32_t i = threadIdx.x % 32; i < num_warps; i += 32) {
    all = {Larger(all.best, table[i].best), fmaxf(all.raw_top, table[i].raw_top),
           all.bad | table[i].bad};
  }
  return OverWarp(all);
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
__device__ __noinline__ inline void MarkTokens(const SampleJob& job, const Slice& slice,
                                               const Cluster& cluster) {
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

// Calls fn(i) for the first of each four values that are this thread's.
template <typename Fn>
__device__ __forceinline__ void EachFour(const Slice& slice, Fn fn) {
  for (int i = threadIdx.x * 4; i < slice.size; i += kSampleThreads * 4) fn(i);
}
__device__ __forceinline__ float4& FourAt(const Slice& slice, int i) {
  return *reinterpret_cast<float4*>(slice.values + i);
}
// Calls fn(value, j) for each of the four, j = 0 to 3.
template <typename Fn>
__device__ __forceinline__ void EachOf(float4& four, Fn fn) {
  fn(four.x, 0);
  fn(four.y, 1);
  fn(four.z, 2);
  fn(four.w, 3);
}

}  // namespace quire::cuda
