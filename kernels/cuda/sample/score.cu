// Score: a block scores a row. It reads the row from the second-level cache, once for each of: the
// largest logit, the mass with the rank, and, for top tokens, each thread's best. A thread whose
// token was taken looks for its next one, so further top tokens cost one thread's share of the row.
#include <algorithm>

#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/rows/row_math.cuh"
#include "kernels/cuda/sample/sample_math.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;

struct ScoreArgs {
  const float* logits;
  int64_t stride;
  int32_t rows, vocab;
  const ScoreJob* jobs;
};

struct ScoreShared {
  ScoreJob job;
  uint64_t room[kWarps];
};

__device__ uint64_t LargestOfBlock(uint64_t mine, ScoreShared& shared) {
  __syncthreads();  // the room is read no more
  const uint64_t of_warp = WarpLargest(mine);
  if (threadIdx.x % 32 == 0) shared.room[threadIdx.x / 32] = of_warp;
  __syncthreads();
  return WarpLargest(shared.room[threadIdx.x % 32]);
}

__device__ uint64_t TotalOfBlock(uint64_t mine, ScoreShared& shared) {
  __syncthreads();
  const uint64_t of_warp = WarpTotal(mine);
  if (threadIdx.x % 32 == 0) shared.room[threadIdx.x / 32] = of_warp;
  __syncthreads();
  return WarpTotal(shared.room[threadIdx.x % 32]);
}

// The first in order of this thread's tokens that come after `taken`; 0: none.
__device__ uint64_t NextAfter(uint64_t taken, const float* row, int32_t vocab) {
  uint64_t best = 0;
#pragma unroll 8
  for (int32_t i = threadIdx.x; i < vocab; i += kThreads) {
    const uint64_t scored = Scored(row[i], i);
    if (scored < taken) best = Larger(best, scored);
  }
  return best;
}

// A row's largest logit and the logarithm of its mass.
struct Softmax {
  float top, log_mass;
  __device__ uint32_t LogProbability(float logit) const {
    return __float_as_uint(logit - top - log_mass);
  }
};

// Writes the pairs of the first tokens in order. `first` is the first of them.
__device__ void WriteTop(uint64_t first, const float* row, int32_t vocab, const Softmax& softmax,
                         ScoreShared& shared) {
  uint32_t* out = shared.job.out + 3;
  uint64_t taken = first;
  uint64_t mine = NextAfter(~uint64_t{0}, row, vocab);
  for (int32_t i = 0; i < shared.job.num_top; ++i, out += 2) {
    const bool possible = taken != 0 && ScoreOf(taken) > -kInfinity;
    if (threadIdx.x == 0) {
      out[0] = possible ? TokenOf(taken) : kNoToken;
      out[1] = possible ? softmax.LogProbability(ScoreOf(taken)) : 0;
    }
    if (!possible || i + 1 == shared.job.num_top) continue;
    if (mine == taken) mine = NextAfter(taken, row, vocab);
    taken = LargestOfBlock(mine, shared);
  }
}

__global__ void __launch_bounds__(kThreads) ScoreKernel(ScoreArgs a) {
  PdlTrigger();
  __shared__ ScoreShared shared;
  PdlWait();
  if (threadIdx.x == 0) shared.job = a.jobs[blockIdx.x];
  __syncthreads();
  const ScoreJob& job = shared.job;
  DeviceCheck(job.row >= 0 && job.row < a.rows);
  const float* row = a.logits + job.row * a.stride;
  const int32_t vocab = a.vocab;

  uint64_t best = 0;
  float any = -kInfinity;  // NaN after any logit was NaN
#pragma unroll 8
  for (int32_t i = threadIdx.x; i < vocab; i += kThreads) {
    any = LargerOrNan(any, row[i]);
    best = Larger(best, Scored(row[i], i));
  }
  const bool bad = __syncthreads_or(!(any < kInfinity)) != 0;
  best = LargestOfBlock(best, shared);
  if (bad || ScoreOf(best) == -kInfinity) {
    const int32_t words = ScoreWords(job.num_top, job.num_ids);
    for (int32_t i = threadIdx.x; i < words; i += kThreads) job.out[i] = 0;
    return;
  }

  const float top = ScoreOf(best);
  const int32_t token = *job.token;
  DeviceCheck(token >= 0 && token < vocab);
  const uint64_t mine = Scored(row[token], token);
  uint64_t mass = 0, before = 0;
#pragma unroll 8
  for (int32_t i = threadIdx.x; i < vocab; i += kThreads) {
    mass += MassOf(row[i] - top);
    before += Scored(row[i], i) > mine ? 1 : 0;
  }
  mass = TotalOfBlock(mass, shared);
  before = TotalOfBlock(before, shared);
  const Softmax softmax = {top, static_cast<float>(log(static_cast<double>(mass) * 0x1p-40))};
  if (threadIdx.x == 0) {
    job.out[0] = static_cast<uint32_t>(token);
    job.out[1] = softmax.LogProbability(row[token]);
    job.out[2] = static_cast<uint32_t>(before) + 1;
  }
  if (job.num_top > 0) WriteTop(best, row, vocab, softmax, shared);
  uint32_t* of_ids = job.out + ScoreWords(job.num_top, 0);
  for (int32_t i = threadIdx.x; i < job.num_ids; i += kThreads) {
    DeviceCheck(job.ids[i] >= 0 && job.ids[i] < vocab);
    of_ids[i] = softmax.LogProbability(row[job.ids[i]]);
  }
}

}  // namespace

void Score(const ScoreParams& p, const Device& device) {
  CHECK(p.logits.dtype == DType::kF32 && p.logits.rank == 2);
  if (p.num_jobs == 0) return;
  const ScoreArgs args{.logits = p.logits.ptr<float>(),
                       .stride = p.logits.row_stride,
                       .rows = static_cast<int32_t>(p.logits.dim[0]),
                       .vocab = static_cast<int32_t>(p.logits.dim[1]),
                       .jobs = p.jobs};
  const Grid grid{.blocks = dim3(static_cast<unsigned>(p.num_jobs)), .threads = kThreads};
  Launch(device, grid, ScoreKernel, args);
}

}  // namespace quire::cuda
