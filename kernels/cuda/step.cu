// BeginStep and EndStep: read a step's message from host memory and write its results back, in
// place. They move few bytes; their cost is the latency of a read over PCIe (more than a
// microsecond). So one block fetches the message with one such read, or two, and applies it. Other
// blocks copy the jobs, which are most of the bytes of a decoding step.
#include <algorithm>

#include "kernels/ceil_div.h"
#include "kernels/cuda/device/block_scan.cuh"
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/rows/row_layout.h"
#include "kernels/cuda/rows/row_math.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
// Bytes of a message that fit in shared memory. The rest is read from host memory where it is used.
constexpr uint32_t kStageBytes = 64 << 10;
// Bytes of jobs that a block copies: 16 a thread.
constexpr uint32_t kJobBytes = kThreads * 16;

struct BeginArgs {
  BeginStepParams p;
  uint32_t first_bytes;  // of the message, fetched before its length is known
  uint32_t log_block_size;
};

// A work's number of tokens and samples, summed by the scan over works.
struct Counts {
  int32_t tokens, samples;
};

__device__ Counts operator+(const Counts& a, const Counts& b) {
  return {a.tokens + b.tokens, a.samples + b.samples};
}

// Message: a message whose beginning has been fetched into shared memory.
class Message {
 public:
  __device__ Message(const char* host, char* stage) : host_(host), stage_(stage) {}

  // Fetches bytes [begin, end), both multiples of 16, end at most kStageBytes.
  __device__ void Fetch(uint32_t begin, uint32_t end) {
    for (uint32_t at = begin + threadIdx.x * 16; at < end; at += kThreads * 16) {
      *reinterpret_cast<uint4*>(stage_ + at) = *reinterpret_cast<const uint4*>(host_ + at);
    }
    staged_ = end;
  }
  __device__ const StepMessage& head() const {
    return *reinterpret_cast<const StepMessage*>(stage_);
  }
  // Bytes [offset, offset + bytes), in shared memory if all of them are fetched.
  __device__ const char* At(uint32_t offset, uint64_t bytes) const {
    return (offset + bytes <= staged_ ? stage_ : host_) + offset;
  }

 private:
  const char* const host_;
  char* const stage_;
  uint32_t staged_ = 0;
};

// Copies `bytes` bytes, a multiple of 4, with `count` threads; this is thread `index` of them.
__device__ void Copy(void* to, const char* from, uint32_t bytes, int index, int count) {
  const bool wide = (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 == 0;
  uint32_t done = 0;
  if (wide) {
    done = bytes / 16 * 16;
#pragma unroll 4
    for (uint32_t i = index; i < bytes / 16; i += count) {
      static_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
  }
#pragma unroll 4
  for (uint32_t i = done / 4 + index; i < bytes / 4; i += count) {
    static_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
  }
}

// One warp copies a patch, and the whole block a large one: the bytes are still in host memory, so
// the time depends on the number of reads in flight.
__device__ void ApplyPatches(const Message& message) {
  constexpr uint32_t kLarge = 2048;
  const StepMessage& head = message.head();
  const auto* patches = reinterpret_cast<const Patch*>(
      message.At(head.patches_at, head.num_patches * uint64_t{sizeof(Patch)}));
  const int lane = threadIdx.x % 32;
  bool any_large = false;
  for (int i = threadIdx.x / 32; i < head.num_patches; i += kWarps) {
    const Patch patch = patches[i];
    any_large |= patch.bytes > kLarge;
    if (patch.bytes > kLarge) continue;
    Copy(patch.to, message.At(patch.from, patch.bytes), patch.bytes, lane, 32);
  }
  if (__syncthreads_or(any_large) == 0) return;
  for (int i = 0; i < head.num_patches; ++i) {
    const Patch patch = patches[i];
    if (patch.bytes <= kLarge) continue;
    Copy(patch.to, message.At(patch.from, patch.bytes), patch.bytes, threadIdx.x, kThreads);
  }
}

// Fills the arrays by sequence and by row of logits. `begins` gets the first token of each work.
__device__ void ExpandWorks(const BeginStepParams& p, const RowWork* works, int32_t* begins) {
  Counts before = {0, 0};
  for (int first = 0; first < p.num_seqs; first += kThreads) {
    const int s = first + threadIdx.x;
    const RowWork work = s < p.num_seqs ? works[s] : RowWork{};
    Counts total;
    const Counts mine = SumBefore<kThreads>(Counts{work.count, work.sample}, &total);
    if (s < p.num_seqs) {
      const int32_t begin = before.tokens + mine.tokens, end = begin + work.count;
      DeviceCheck(work.start >= 0 && work.count >= 0 && end <= p.num_tokens);
      DeviceCheck(work.sample >= 0 && work.sample <= work.count);
      begins[s] = begin;
      p.query_begin[s + 1] = end;
      p.context_len[s] = work.start + work.count;
      p.table_row[s] = work.row;
      for (int32_t i = 0; i < work.sample; ++i) {
        p.logit_rows[before.samples + mine.samples + i] = end - work.sample + i;
      }
    }
    before = before + total;
  }
  DeviceCheck(before.tokens == p.num_tokens && before.samples == p.num_samples);
  if (threadIdx.x == 0) p.query_begin[0] = 0;
}

// The work of token t: the last non-empty work that begins at t or before.
__device__ int WorkOf(int32_t t, const RowWork* works, const int32_t* begins, int num_works) {
  const int guess = min(t, num_works - 1);  // exact where every work is one token
  if (begins[guess] == t && works[guess].count > 0) return guess;
  int low = 0, high = num_works;  // begins[low] <= t < begins[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (begins[middle] <= t ? low : high) = middle;
  }
  return low;
}

__device__ void ExpandTokens(const BeginArgs& a, const RowWork* works, const int32_t* begins) {
  constexpr int kAtOnce = 4;  // reads of the tables in flight
  const BeginStepParams& p = a.p;
  const int32_t offset_mask = (1 << a.log_block_size) - 1;
  for (int32_t first = threadIdx.x; first < p.num_tokens; first += kAtOnce * kThreads) {
    int32_t token[kAtOnce], block[kAtOnce], position[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int32_t t = first + i * kThreads;
      if (t >= p.num_tokens) continue;
      const int s = WorkOf(t, works, begins, p.num_seqs);
      const int64_t row = works[s].row;
      position[i] = works[s].start + t - begins[s];
      token[i] = p.token_table[row * p.token_stride + position[i]];
      block[i] = p.block_table[row * p.table_stride + (position[i] >> a.log_block_size)];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int32_t t = first + i * kThreads;
      if (t >= p.num_tokens) continue;
      p.token_ids[t] = token[i];
      p.positions[t] = position[i];
      p.slots[t] = (int64_t{block[i]} << a.log_block_size) + (position[i] & offset_mask);
    }
  }
}

// Applies the message's patches and expands its works.
__device__ void ApplyMessage(const BeginArgs& a, const char* slot, char* stage) {
  const BeginStepParams& p = a.p;
  Message message(slot, stage);
  message.Fetch(0, a.first_bytes);
  __syncthreads();
  const StepMessage& head = message.head();
  DeviceCheck(head.bytes <= p.ring.message_stride && head.num_rows == p.num_seqs &&
              head.num_samples == p.num_samples);
  // The lists of patches and works end here. Other blocks copy the jobs, and the patches' bytes are
  // copied from host memory directly.
  const uint32_t listed = max(head.patches_at + head.num_patches * uint32_t{sizeof(Patch)},
                              head.work_at + p.num_seqs * uint32_t{sizeof(RowWork)});
  const uint32_t bytes = min(listed, kStageBytes);
  if (bytes > a.first_bytes) {
    message.Fetch(a.first_bytes, bytes);
    __syncthreads();
  }
  const auto* works = reinterpret_cast<const RowWork*>(
      message.At(head.work_at, p.num_seqs * uint64_t{sizeof(RowWork)}));
  auto* begins = reinterpret_cast<int32_t*>(stage + kStageBytes);
  ApplyPatches(message);
  ExpandWorks(p, works, begins);
  // All warps have applied their patches before the tables are read.
  __syncthreads();
  ExpandTokens(a, works, begins);
}

// Copies a block's share of the jobs.
__device__ void CopyJobs(const BeginArgs& a, const char* slot) {
  const auto& head = *reinterpret_cast<const StepMessage*>(slot);
  const char* from = slot + head.jobs_at;
  const uint32_t bytes = a.p.num_samples * uint32_t{sizeof(SampleJob)};
  const uint32_t begin = (blockIdx.x - 1) * kJobBytes, end = min(begin + kJobBytes, bytes);
  Copy(reinterpret_cast<char*>(a.p.jobs) + begin, from + begin, end - begin, threadIdx.x, kThreads);
}

__global__ void __launch_bounds__(kThreads) BeginStepKernel(BeginArgs a) {
  extern __shared__ uint4 stage[];
  PdlTrigger();
  PdlWait();
  const StepRing& ring = a.p.ring;
  const auto number = static_cast<int64_t>(*ring.step % static_cast<uint64_t>(ring.slots));
  const char* slot = static_cast<const char*>(ring.messages) + number * ring.message_stride;
  if (blockIdx.x == 0) {
    ApplyMessage(a, slot, reinterpret_cast<char*>(stage));
  } else {
    CopyJobs(a, slot);
  }
}

__global__ void __launch_bounds__(kThreads) EndStepKernel(EndStepParams p) {
  PdlTrigger();
  PdlWait();
  const uint64_t step = *p.ring.step;
  const auto slot = static_cast<int64_t>(step % static_cast<uint64_t>(p.ring.slots));
  Copy(p.ring.results + slot * p.ring.result_stride, reinterpret_cast<const char*>(p.results),
       p.num_samples * uint32_t{sizeof(SampleResult)}, threadIdx.x, kThreads);
  __threadfence_system();
  __syncthreads();  // every thread has read the step and written its results
  if (threadIdx.x == 0) *p.ring.step = step + 1;
}

int Log2(int32_t power) {
  int log = 0;
  while ((1 << log) < power) ++log;
  CHECK_EQ(1 << log, power);
  return log;
}

}  // namespace

void BeginStep(const BeginStepParams& p, const Device& device) {
  CHECK(reinterpret_cast<uintptr_t>(p.ring.messages) % 16 == 0 && p.ring.message_stride % 16 == 0);
  // Covers the head, the works and the patches of a common step.
  constexpr int64_t kFewPatches = 1536;
  const int64_t expected = static_cast<int64_t>(sizeof(StepMessage)) + kFewPatches +
                           p.num_seqs * int64_t{sizeof(RowWork)};
  const int64_t first = std::min(
      {RoundUp<int64_t>(expected, 16), p.ring.message_stride, static_cast<int64_t>(kStageBytes)});
  const size_t shared = kStageBytes + static_cast<size_t>(p.num_seqs + 1) * sizeof(int32_t);
  constexpr int kMostShared = 227 << 10;
  CHECK_LE(shared, static_cast<size_t>(kMostShared) - 1024);
  static const cudaError_t allowed = cudaFuncSetAttribute(
      BeginStepKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared - 1024);
  CUDA_CHECK(allowed);
  const unsigned job_blocks = Blocks(p.num_samples * int64_t{sizeof(SampleJob)}, kJobBytes);
  Launch(device, {.blocks = 1 + job_blocks, .threads = kThreads, .shared_bytes = shared},
         BeginStepKernel,
         BeginArgs{.p = p,
                   .first_bytes = static_cast<uint32_t>(first),
                   .log_block_size = static_cast<uint32_t>(Log2(p.block_size))});
}

void EndStep(const EndStepParams& p, const Device& device) {
  Launch(device, {.threads = kThreads}, EndStepKernel, p);
}

}  // namespace quire::cuda
