// ColumnsToRows, ShareSamples: each rank writes what the others need straight to its place there,
// then meets them. The place is free: a rank that writes rows of logits again has the results that
// the others drew from the rows before, and a rank that writes results again has the rows that the
// others sent after they had read the results before.
#include "kernels/cuda/group/group_kernels.h"
#include "kernels/cuda/group/peer_access.cuh"
#include "kernels/cuda/rows/row_layout.h"
#include "kernels/cuda/rows/row_math.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWords = sizeof(SampleResult) / sizeof(uint32_t);
static_assert(sizeof(SampleResult) % sizeof(uint32_t) == 0);

struct RowsArgs {
  const uint4* x;
  uint4* out[kMaxPeers];
  uint32_t rows, most_rows;
  uint32_t fours;  // of a row of x
};

__global__ void __launch_bounds__(kThreads)
    ColumnsToRowsKernel(const __grid_constant__ RowsArgs a,
                        const __grid_constant__ GroupView group) {
  PdlTrigger();
  PdlWait();
  const uint32_t call = BeginCall(group);
  // The limits of rows and vocabularies keep the product far below 2^32.
  const uint32_t total = static_cast<uint32_t>(a.rows) * a.fours, step = gridDim.x * kThreads;
  for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < total; i += step) {
    const uint32_t row = i / a.fours, owner = row / a.most_rows;
    const int64_t line = int64_t{row - owner * a.most_rows} * group.ranks + group.rank;
    StoreShared(a.out[owner] + line * a.fours + i % a.fours, a.x[i]);
  }
  MeetPeers(group, call);
  EndCall(group, call);
}

struct SamplesArgs {
  const SampleJob* jobs;
  SampleResult* results;
  int32_t rows, most_rows;
};

__device__ void WriteToken(const SampleJob& job, int32_t token) {
  if (job.drawn != nullptr) *job.drawn = token;
}

__global__ void __launch_bounds__(kThreads)
    ShareSamplesKernel(SamplesArgs a, const __grid_constant__ GroupView group) {
  PdlTrigger();
  PdlWait();
  const uint32_t call = BeginCall(group);
  const int begin = min(group.rank * a.most_rows, a.rows);
  const int end = min(begin + a.most_rows, a.rows);
  const auto* const mine = reinterpret_cast<const uint32_t*>(a.results);
  for (int i = begin * kWords + threadIdx.x; i < end * kWords; i += kThreads) {
    for (int r = 0; r < group.ranks; ++r) {
      auto* const there = reinterpret_cast<uint32_t*>(group.inbox[r] + group.layout.results);
      if (r != group.rank) StoreShared(there + i, mine[i]);
    }
  }
  MeetPeers(group, call);
  const auto* const here =
      reinterpret_cast<const uint32_t*>(group.inbox[group.rank] + group.layout.results);
  for (int row = threadIdx.x; row < a.rows; row += kThreads) {
    SampleResult result = a.results[row];
    if (row < begin || row >= end) {
      uint32_t words[kWords];
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = LoadShared(here + row * kWords + i);
      result = *reinterpret_cast<const SampleResult*>(words);
      a.results[row] = result;
    }
    WriteToken(a.jobs[row], result.token);
  }
  EndCall(group, call);
}

__global__ void __launch_bounds__(kThreads)
    SpreadSamplesKernel(SamplesArgs a, const SampleResult* gathered) {
  PdlTrigger();
  PdlWait();
  const int row = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (row >= a.rows) return;
  a.results[row] = gathered[row];
  WriteToken(a.jobs[row], gathered[row].token);
}

SamplesArgs ArgsOf(const ShareSamplesParams& p, int32_t ranks) {
  return {.jobs = p.jobs,
          .results = p.results,
          .rows = p.num_rows,
          .most_rows = static_cast<int32_t>(MostRows(p.num_rows, ranks))};
}

}  // namespace

void ColumnsToRows(const TensorView& x, float* const (&out)[kMaxPeers], const GroupView& group,
                   const Device& device) {
  CHECK(x.dtype == DType::kF32 && x.rank == 2 && x.row_stride == x.dim[1] && x.dim[1] % 4 == 0);
  if (x.dim[0] == 0) return;
  RowsArgs args{.x = x.ptr<uint4>(),
                .rows = static_cast<uint32_t>(x.dim[0]),
                .most_rows = static_cast<uint32_t>(MostRows(x.dim[0], group.ranks)),
                .fours = static_cast<uint32_t>(x.dim[1] / 4)};
  for (int r = 0; r < group.ranks; ++r) args.out[r] = reinterpret_cast<uint4*>(out[r]);
  // The same number on every rank, whatever its device.
  const unsigned blocks = std::min<unsigned>(Blocks(x.size() / 4, kThreads), kFlagBlocks);
  Launch(device, {.blocks = blocks, .threads = kThreads}, ColumnsToRowsKernel, args, group);
}

void ShareSamples(const ShareSamplesParams& p, const GroupView& group, const Device& device) {
  if (p.num_rows == 0) return;
  Launch(device, {.threads = kThreads}, ShareSamplesKernel, ArgsOf(p, group.ranks), group);
}

void SpreadSamples(const ShareSamplesParams& p, const SampleResult* results, const Device& device) {
  if (p.num_rows == 0) return;
  Launch(device, {.blocks = Blocks(p.num_rows, kThreads), .threads = kThreads}, SpreadSamplesKernel,
         ArgsOf(p, 1), results);
}

}  // namespace quire::cuda
