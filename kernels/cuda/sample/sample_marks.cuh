// Marks: what a job changes in a row of logits before the draw, as a word for each token. Blocks
// make the marks together, each in the memory of the block that has the token, and apply their own
// when they read the logits.
#pragma once

#include "kernels/cuda/sample/sample_row.cuh"

namespace quire::cuda {

// A token's mark, which lies in the place of its value until the logit is read. From bit 0: 1 bit,
// the token occurs in the prompt or output; 19 bits, its occurrences in the output; 1 bit, it has a
// bias; 1 bit, it is banned; and from bit 26, the length of the repetition that it would continue.
inline constexpr uint32_t kSeen = 1, kSeenInOutput = 2, kSeenMask = (1u << 20) - 1;
inline constexpr uint32_t kBiased = 1u << 20, kBanned = 1u << 21;
inline constexpr int kRepeatShift = 26;
static_assert(kDryMostTokens < 1 << (32 - kRepeatShift));

__device__ __forceinline__ bool HasPenalties(const SampleRow& row) {
  return row.repetition_penalty != 1.0f || row.presence_penalty != 0.0f ||
         row.frequency_penalty != 0.0f;
}
__device__ __forceinline__ bool IsModified(const SampleJob& job) {
  return job.mask != nullptr || job.num_bias > 0 || job.num_banned > 0 || job.num_bad_words > 0 ||
         job.num_allowed > 0 ||
         ((HasPenalties(job.params) || job.params.dry_multiplier > 0.0f) && job.num_known > 0);
}

// Where a block's threads write marks.
struct MarkPlaces {
  uint32_t* marks;  // of this block's slice
  Slice slice;
  Cluster cluster;

  __device__ uint32_t* Of(int32_t token) const {
    DeviceCheck(token >= 0 && token < slice.vocab);
    return cluster.At(&marks[token % slice.size], token / slice.size);
  }
};

// True if a bad word ends at `words[i]`, and its other tokens are the last known ones.
__device__ inline bool EndsWord(const SampleJob& job, int i) {
  if (job.bad_words[i] >= 0) return false;
  for (int before = 1; before <= i && job.bad_words[i - before] >= 0; ++before) {
    if (before > job.num_known) return false;
    if (job.tokens[job.num_known - before] != job.bad_words[i - before]) return false;
  }
  return true;
}

__device__ inline bool IsBreaker(const SampleJob& job, int32_t token) {
  for (int i = 0; i < job.num_breakers; ++i) {
    if (job.breakers[i] == token) return true;
  }
  return false;
}

// Marks the longest repetition that each token would continue: kept in the upper bits alone, so
// that the largest mark is that of the longest. All threads call it, before other marks are made.
__device__ __noinline__ inline void MarkRepeats(const MarkPlaces& places, int begin, int step) {
  SampleShared& shared = Shared();
  const SampleJob& job = shared.job;
  const SampleRow& row = job.params;
  const int known = job.num_known;
  const int first = row.dry_last_n > 0 ? max(known - row.dry_last_n, 0) : 0;
  if (threadIdx.x == 0) shared.repeatable = min(kDryMostTokens, known - first);
  __syncthreads();
  const int back = threadIdx.x;
  if (back < min(kDryMostTokens, known - first) && IsBreaker(job, job.tokens[known - 1 - back])) {
    atomicMin(&shared.repeatable, back);
  }
  __syncthreads();
  const int most = shared.repeatable;
  for (int i = first + begin; i < known; i += step) {
    int length = 0;
    while (length < min(most, i - first) &&
           job.tokens[i - 1 - length] == job.tokens[known - 1 - length]) {
      ++length;
    }
    const int32_t token = job.tokens[i];
    if (length < row.dry_allowed_length || IsBreaker(job, token)) continue;
    // A token that repeats often would take its turn with itself; few of its lengths are new.
    uint32_t* const mark = places.Of(token);
    const uint32_t value = static_cast<uint32_t>(length) << kRepeatShift;
    if (*static_cast<volatile uint32_t*>(mark) < value) atomicMax(mark, value);
  }
  places.cluster.Sync();
}

// Bans all tokens but the allowed ones. All threads call it.
__device__ inline void MarkAllOthers(const MarkPlaces& places, int begin, int step) {
  const SampleJob& job = Shared().job;
  for (int i = threadIdx.x; i < places.slice.size; i += kSampleThreads) places.marks[i] |= kBanned;
  places.cluster.Sync();
  for (int i = begin; i < job.num_allowed; i += step) {
    atomicAnd(places.Of(job.allowed[i]), ~kBanned);
  }
  places.cluster.Sync();
}

// Bans the slice's tokens without a bit in the mask. A lane reads the word of 32 tokens, which may
// lie in host memory and be new there, for the whole warp. All threads call it.
__device__ inline void MarkMasked(const MarkPlaces& places) {
  static_assert(kSliceUnit % 32 == 0);
  const uint32_t* mask = Shared().job.mask;
  const int first_word = places.slice.first / 32;
  const int end_word = (places.slice.vocab + 31) / 32;
  const int lane = threadIdx.x % 32;
  for (int from = threadIdx.x / 32 * 32; from * 32 < places.slice.size; from += kSampleThreads) {
    const int at = first_word + from + lane;
    const uint32_t mine = at < end_word ? __ldcv(mask + at) : 0;
    for (int w = 0; w < 32 && (from + w) * 32 < places.slice.size; ++w) {
      const uint32_t word = __shfl_sync(kAllLanes, mine, w);
      if ((word >> lane & 1) == 0) places.marks[(from + w) * 32 + lane] |= kBanned;
    }
  }
  places.cluster.Sync();
}

// Marks the row's tokens. Each block takes a share of the lists and writes the marks to the blocks
// that have the tokens.
__device__ __noinline__ inline void MarkTokens(Cluster cluster) {
  const SampleJob& job = Shared().job;
  const Slice slice = Shared().slice;
  auto* marks = reinterpret_cast<uint32_t*>(Values());
  for (int i = threadIdx.x; i < slice.size; i += kSampleThreads) marks[i] = 0;
  cluster.Sync();
  const MarkPlaces places = {marks, slice, cluster};
  const int begin = cluster.rank() * kSampleThreads + threadIdx.x;
  const int step = cluster.size() * kSampleThreads;
  DeviceCheck(job.num_known < 1 << 19);
  if (job.params.dry_multiplier > 0.0f) MarkRepeats(places, begin, step);
  if (job.num_allowed > 0) MarkAllOthers(places, begin, step);
  if (job.mask != nullptr) MarkMasked(places);
  for (int i = begin; i < job.num_bias; i += step) atomicOr(places.Of(job.bias[i].token), kBiased);
  for (int i = begin; i < job.num_banned; i += step) atomicOr(places.Of(job.banned[i]), kBanned);
  for (int i = begin; i < job.num_bad_words; i += step) {
    if (EndsWord(job, i)) atomicOr(places.Of(~job.bad_words[i]), kBanned);
  }
  for (int i = begin; HasPenalties(job.params) && i < job.num_known; i += step) {
    uint32_t* const mark = places.Of(job.tokens[i]);
    if (i < job.num_prompt) {
      atomicOr(mark, kSeen);
    } else {
      atomicAdd(mark, kSeenInOutput);
    }
  }
  cluster.Sync();
}

// The bias of a token that has one.
__device__ inline float BiasOf(const SampleJob& job, int32_t token) {
  int low = 0, high = job.num_bias;  // the token's place is in [low, high)
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (job.bias[middle].token <= token ? low : high) = middle;
  }
  return job.bias[low].bias;
}

// The logit after bias, bans and penalties, rounded as on the CPU.
__device__ inline float Modified(float logit, uint32_t mark, int32_t token, const SampleJob& job) {
  if (mark == 0) return logit;
  if ((mark & kBiased) != 0) logit += BiasOf(job, token);
  if ((mark & kBanned) != 0) logit = -kInfinity;
  const uint32_t seen = mark & kSeenMask;
  const SampleRow& row = job.params;
  if (seen != 0) {
    logit = logit > 0.0f ? logit / row.repetition_penalty : logit * row.repetition_penalty;
  }
  if (seen >= kSeenInOutput) {
    logit -= row.frequency_penalty * static_cast<float>(seen / kSeenInOutput);
    logit -= row.presence_penalty;
  }
  const auto repeated = static_cast<int32_t>(mark >> kRepeatShift);
  if (repeated == 0) return logit;
  return logit - DryPenalty(row.dry_multiplier, row.dry_base, repeated, row.dry_allowed_length);
}

}  // namespace quire::cuda
