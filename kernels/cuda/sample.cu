// Sample: a cluster of blocks a row, which reads the logits once and keeps them in shared memory.
// What is kept and drawn is defined by values and integer sums (ops.h), and the arithmetic is that
// of sampling_math.h without contraction: the token is the CPU's, bit for bit.
#include <algorithm>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/sample_row.cuh"

namespace quire::cuda {
namespace {

struct SampleArgs {
  const float* logits;
  int64_t stride;
  int32_t vocab;
  int32_t slice_size;
  const SampleJob* jobs;
  SampleResult* results;
};

// What every thread knows of its row once the logits are read.
struct Row {
  Slice slice;
  Extremes extremes;
  bool modified;
};

// The largest of a thread's logits so far, and whether all can be sampled from.
struct Seen {
  float top = -kInfinity;
  int32_t token = 0;
  bool bad = false;

  __device__ void Take(float logit, int32_t at) {
    bad |= !(logit < kInfinity);
    if (logit > top) {
      top = logit;
      token = at;
    }
  }
};

// Reads the slice's logits into shared memory.
template <bool kAligned>
__device__ Extremes ReadSlice(const Slice& slice) {
  constexpr int kAtOnce = 8, kStep = kSampleThreads * 4;  // reads in flight
  Seen seen;
  for (int begin = threadIdx.x * 4; begin < slice.size; begin += kAtOnce * kStep) {
    float4 raw[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = begin + k * kStep;
      if (i < slice.size) raw[k] = RawFour<kAligned>(slice, slice.first + i);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = begin + k * kStep;
      if (i >= slice.size) break;
      EachOf(raw[k], [&](float x, int j) { seen.Take(x, slice.first + i + j); });
      FourAt(slice, i) = raw[k];
    }
  }
  return {Scored(seen.top, seen.token), seen.top, seen.bad};
}

// The same with the logits modified as marked in shared memory.
template <bool kAligned>
__device__ __noinline__ Extremes ReadModified(const Slice& slice, const SampleJob& job) {
  Seen seen, raw_seen;
  EachFour(slice, [&](int i) {
    float4 raw = RawFour<kAligned>(slice, slice.first + i);
    const float4 marks = FourAt(slice, i);
    const float mark[4] = {marks.x, marks.y, marks.z, marks.w};
    EachOf(raw, [&](float& x, int j) {
      raw_seen.Take(x, 0);
      x = Modified(x, __float_as_uint(mark[j]), job);
      seen.Take(x, slice.first + i + j);
    });
    FourAt(slice, i) = raw;
  });
  return {Scored(seen.top, seen.token), raw_seen.top, seen.bad || raw_seen.bad};
}

// Mass of the slice's raw logits. Unmodified ones are read from shared memory, where they still
// are.
template <bool kAligned>
__device__ uint64_t RawMass(const Row& row) {
  uint64_t mass = 0;
  EachFour(row.slice, [&](int i) {
    float4 raw =
        row.modified ? RawFour<kAligned>(row.slice, row.slice.first + i) : FourAt(row.slice, i);
    EachOf(raw, [&](float x, int) { mass += MassOf(x - row.extremes.raw_top); });
  });
  return mass;
}

// Makes the slice's logits z = (logit - top) / temperature.
__device__ void Scale(const Row& row, float temperature) {
  const float top = ScoreOf(row.extremes.best);
  EachFour(row.slice, [&](int i) {
    EachOf(FourAt(row.slice, i), [&](float& x, int) { x = (x - top) / temperature; });
  });
}

// Counts the slice's tokens as ordered, into the first block's bins of the row, and tells it their
// mass.
__device__ void Count(const Row& row, const Orders& orders, const Cluster& cluster,
                      SampleShared& shared) {
  const uint32_t span = min(orders.bins.last, kLastKey - 1) - orders.bins.first;
  uint64_t mass = 0;
  EachFour(row.slice, [&](int i) {
    EachOf(FourAt(row.slice, i), [&](float z, int) {
      const uint32_t key = KeyOf(z);
      if (key > orders.last_key) return;
      if (key >= orders.mass_begin && key < orders.mass_end) mass += MassOf(z);
      if (key - orders.bins.first <= span) atomicAdd(&shared.bins[orders.bins.Of(key)], 1u);
    });
  });
  mass = WarpTotal(mass);
  if (threadIdx.x % 32 == 0) cluster.Tell(shared.mass, mass, 0);
  __syncthreads();
  for (int b = threadIdx.x; b < kBins; b += kSampleThreads) {
    if (shared.bins[b] != 0) atomicAdd(cluster.At(&shared.row_bins[b], 0), shared.bins[b]);
    shared.bins[b] = 0;
  }
}

// The first block's part of a search: from what was counted, what all do next.
__device__ __noinline__ void Direct(const SampleJob& job, const Cluster& cluster,
                                    SampleShared& shared) {
  __shared__ Orders next;
  __shared__ bool usable;
  const Orders done = shared.orders;
  if (threadIdx.x < 32) {
    const uint64_t mass = TotalOf(shared.mass, cluster.num_warps());
    if (threadIdx.x == 0) {
      usable =
          !shared.search.by_mass || TakeMass(done, mass, job.params.top_p, shared.search, &next);
    }
  }
  __syncthreads();
  if (usable) FindCrossing(shared.row_bins, done.bins, shared.search, &shared.found);
  __syncthreads();
  if (usable && threadIdx.x == 0) {
    next = shared.search.by_mass ? AfterMass(done, shared.found, shared.search)
                                 : AfterRank(done, shared.found, job.params.top_p, shared.search);
  }
  for (int b = threadIdx.x; b < kBins; b += kSampleThreads) shared.row_bins[b] = 0;
  __syncthreads();
  if (threadIdx.x < cluster.size()) *cluster.At(&shared.orders, threadIdx.x) = next;
}

// Whether top_k says anything.
__device__ bool ByRank(const SampleJob& job, int32_t vocab) {
  return job.params.top_k > 0 && job.params.top_k < vocab;
}

// Searches the edge of what top_k and top_p keep. At the return all blocks have the same orders:
// to gather few tokens, or to draw from those they have.
__device__ __noinline__ void SearchEdge(const Row& row, const Cluster& cluster,
                                        SampleShared& shared) {
  const SampleJob& job = shared.job;
  if (threadIdx.x == 0) {
    const bool by_rank = ByRank(job, row.slice.vocab);
    shared.search = {.by_mass = !by_rank,
                     .rank = by_rank ? static_cast<uint32_t>(job.params.top_k) : 0};
    shared.orders = {Next::kCount, kLastKey, LinearBins(), 0, by_rank ? 0 : kLastKey};
  }
  __syncthreads();
  while (shared.orders.next == Next::kCount) {
    Count(row, shared.orders, cluster, shared);
    cluster.Sync();
    if (cluster.rank() == 0) Direct(job, cluster, shared);
    cluster.Sync();
  }
}

// Hands the slice's tokens as far as the last key to the first block.
__device__ __noinline__ void Gather(const Row& row, const Cluster& cluster, SampleShared& shared) {
  const uint32_t last_key = shared.orders.last_key;
  EachFour(row.slice, [&](int i) {
    EachOf(FourAt(row.slice, i), [&](float z, int j) {
      if (KeyOf(z) > last_key) return;
      const uint32_t at = atomicAdd(cluster.At(&shared.num_few, 0), 1u);
      DeviceCheck(at < kFew);
      *cluster.At(&shared.few_z[at], 0) = z;
      *cluster.At(&shared.few_token[at], 0) = row.slice.first + i + j;
    });
  });
}

// The block's sum of a value a thread, the same in each.
__device__ uint64_t BlockTotal(uint64_t mine, OfWarps<uint64_t>& room) {
  mine = WarpTotal(mine);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
  __syncthreads();
  return TotalOf(room, kSampleWarps);
}

// Draws from the few tokens gathered, each compared with all others: a thread a token. Returns the
// warp's best.
__device__ __noinline__ uint64_t DrawFew(const SampleJob& job, int32_t vocab,
                                         SampleShared& shared) {
  const SampleRow& params = job.params;
  const uint32_t n = shared.num_few, mine = threadIdx.x;
  const float z = mine < n ? shared.few_z[mine] : -kInfinity;
  if (mine < n) shared.few_mass[mine] = MassOf(z);
  __syncthreads();
  uint32_t num_above = 0;
  uint64_t above = 0;
  for (uint32_t i = 0; mine < n && i < n; ++i) {
    if (shared.few_z[i] > z) {
      ++num_above;
      above += shared.few_mass[i];
    }
  }
  // A search by mass has dropped what top_k drops.
  bool kept = mine < n && (!ByRank(job, vocab) || num_above < static_cast<uint32_t>(params.top_k));
  if (params.top_p < 1.0f) {
    uint64_t wanted = shared.search.wanted;
    if (!shared.search.by_mass) {
      wanted = Wanted(params.top_p, BlockTotal(kept ? shared.few_mass[mine] : 0, shared.mass));
    }
    kept = kept && above < wanted;
  }
  if (params.min_p > 0.0f) kept = kept && !(ExactExp(z) < params.min_p);
  uint64_t best = 0;
  if (kept) {
    const uint32_t token = shared.few_token[mine];
    const auto position = static_cast<uint32_t>(job.num_known);
    best = Scored(z + GumbelNoise(params.seed, position, token), token);
  }
  return WarpLargest(best);
}

// No less than the noise that a random word stands for: -ln(-ln(1 - v)) <= -ln(v), and a margin.
__device__ __forceinline__ float NoiseBound(uint32_t word) {
  return fmaf(__log2f((static_cast<float>(word) + 0.5f) * 0x1p-32f), -0.6931472f, 1e-3f);
}
// No noise is larger: -ln(2^-33).
constexpr float kMostNoise = 22.9f;

// Draws from the slice's tokens as far as `last_key`. A lane takes the four tokens of one random
// counter; tokens whose noise cannot lift them over what the slice has reached are passed over.
// Returns the warp's best.
__device__ uint64_t DrawSlice(const Row& row, uint32_t last_key, SampleShared& shared) {
  const SampleRow& params = shared.job.params;
  const auto position = static_cast<uint32_t>(shared.job.num_known);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const volatile uint32_t& reached = shared.floor;
  float min_z = FromKey(min(last_key, kLastKey - 1));
  // Far below what min_p keeps, whatever the rounding.
  if (params.min_p > 0.0f) min_z = fmaxf(min_z, __logf(params.min_p) - 0.01f);
  uint64_t best = 0;
  for (int pair = warp; pair * kSliceUnit < row.slice.size; pair += kSampleWarps) {
    const int at = pair * kSliceUnit + lane / 16 * 64 + lane % 16;
    float z[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) z[i] = row.slice.values[at + i * 16];
    const float floor = FromOrdered(reached);
    const float least = fmaxf(min_z, floor - kMostNoise);
    const bool any = fmaxf(fmaxf(z[0], z[1]), fmaxf(z[2], z[3])) >= least;
    if (!__any_sync(kAllLanes, any)) continue;
    const uint32_t token = row.slice.first + at;
    const Philox4 random =
        Philox4x32(params.seed, {{token / 64 * 16 + token % 16, position, 0, 0}});
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (z[i] < least || z[i] + NoiseBound(random.word[i]) < floor) continue;
      if (params.min_p > 0.0f && ExactExp(z[i]) < params.min_p) continue;
      const float noise = -ExactLog(ExactExponential(random.word[i]));
      best = Larger(best, Scored(z[i] + noise, token + i * 16));
    }
    const uint32_t of_warp = __reduce_max_sync(kAllLanes, static_cast<uint32_t>(best >> 32));
    if (lane == 0 && of_warp > reached) atomicMax(&shared.floor, of_warp);
  }
  return WarpLargest(best);
}

// The first block's last word, by one thread. The logits in device memory are still the raw ones.
__device__ __noinline__ void Answer(const SampleArgs& a, const Row& row, uint64_t raw_mass,
                                    int32_t token) {
  const float log_mass = static_cast<float>(log(static_cast<double>(raw_mass) * 0x1p-40));
  const float logprob = row.slice.row[token] - row.extremes.raw_top - log_mass;
  a.results[blockIdx.y] = {.token = token, .logprob = logprob, .nonfinite = 0};
}

// Draws a token; the first block's first warp returns it.
__device__ int32_t Draw(const Row& row, const Cluster& cluster, SampleShared& shared) {
  const SampleRow& params = shared.job.params;
  Scale(row, params.temperature);
  const bool filtered = ByRank(shared.job, row.slice.vocab) || params.top_p < 1.0f;
  if (filtered) {
    SearchEdge(row, cluster, shared);
  } else {
    __syncthreads();  // a lane draws for tokens that others scaled
  }
  const uint32_t last_key = filtered ? shared.orders.last_key : kLastKey;
  if (filtered && shared.orders.next == Next::kGather) {
    Gather(row, cluster, shared);
    cluster.Sync();
    if (cluster.rank() != 0) return 0;
    const uint64_t best = DrawFew(shared.job, row.slice.vocab, shared);
    if (threadIdx.x % 32 == 0) shared.drawn[threadIdx.x / 32] = best;
    __syncthreads();
    return TokenOf(LargestOf(shared.drawn, kSampleWarps));
  }
  const uint64_t best = DrawSlice(row, last_key, shared);
  if (threadIdx.x % 32 == 0) cluster.Tell(shared.drawn, best, 0);
  cluster.Sync();
  return TokenOf(LargestOf(shared.drawn, cluster.num_warps()));
}

template <bool kAligned>
__global__ void __launch_bounds__(kSampleThreads, 2) SampleKernel(SampleArgs a) {
  extern __shared__ uint4 memory[];
  SampleShared& shared = *reinterpret_cast<SampleShared*>(memory);
  PdlTrigger();
  Cluster cluster;
  for (int b = threadIdx.x; b < kBins; b += kSampleThreads) {
    shared.bins[b] = shared.row_bins[b] = 0;
  }
  if (threadIdx.x == 0) {
    shared.floor = Ordered(-kInfinity);
    shared.num_few = 0;
  }
  cluster.Arrive();  // all blocks run, and may be written to, once all have waited
  PdlWait();
  const auto* job_words = reinterpret_cast<const uint64_t*>(a.jobs + blockIdx.y);
  if (threadIdx.x < sizeof(SampleJob) / 8) {
    reinterpret_cast<uint64_t*>(&shared.job)[threadIdx.x] = job_words[threadIdx.x];
  }
  __syncthreads();
  const SampleJob& job = shared.job;
  Row row{.slice = {.row = a.logits + blockIdx.y * a.stride,
                    .values = reinterpret_cast<float*>(&shared + 1),
                    .first = static_cast<int32_t>(cluster.rank()) * a.slice_size,
                    .size = a.slice_size,
                    .vocab = a.vocab},
          .extremes = {},
          .modified = IsModified(job)};
  cluster.Wait();
  if (row.modified) MarkTokens(job, row.slice, cluster);

  const Extremes extremes = OverWarp(row.modified ? ReadModified<kAligned>(row.slice, job)
                                                  : ReadSlice<kAligned>(row.slice));
  if (threadIdx.x % 32 < cluster.size()) {
    cluster.Tell(shared.extremes, extremes, threadIdx.x % 32);
  }
  cluster.Sync();
  row.extremes = ExtremesOf(shared.extremes, cluster.num_warps());
  const bool answers = cluster.rank() == 0 && threadIdx.x == 0;
  int32_t token = TokenOf(row.extremes.best);
  if (row.extremes.bad != 0 || row.extremes.raw_top == -kInfinity ||
      ScoreOf(row.extremes.best) == -kInfinity) {
    token = 0;
    if (answers) a.results[blockIdx.y] = {.token = 0, .logprob = 0.0f, .nonfinite = 1};
  } else {
    const uint64_t mass = WarpTotal(RawMass<kAligned>(row));
    if (threadIdx.x % 32 == 0) cluster.Tell(shared.raw_mass, mass, 0);
    if (job.params.temperature == 0.0f) {
      cluster.Sync();
    } else {
      token = Draw(row, cluster, shared);
    }
    if (cluster.rank() == 0 && threadIdx.x < 32) {
      const uint64_t raw_mass = TotalOf(shared.raw_mass, cluster.num_warps());
      if (threadIdx.x == 0) Answer(a, row, raw_mass, token);
    }
  }
  if (answers && job.drawn != nullptr) *job.drawn = token;
}

// Blocks a row. Results do not depend on it.
int ClusterSize(int64_t vocab, int64_t rows) {
  // Few rows leave multiprocessors free; a slice of more than 64 KB leaves room for one block only.
  const int64_t slice = rows <= 8 ? 8192 : 16384;
  int size = 1;
  while (size < kMaxCluster && size * slice < vocab) size *= 2;
  return size;
}

template <bool kAligned>
void LaunchSample(const SampleArgs& args, int cluster, int64_t rows, const Device& device) {
  constexpr int kMostShared = 227 << 10;
  static const cudaError_t allowed = [] {
    const auto kernel = SampleKernel<kAligned>;
    const cudaError_t wide =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (wide != cudaSuccess) return wide;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kMostShared - 1024);
  }();
  CUDA_CHECK(allowed);
  const size_t shared = sizeof(SampleShared) + static_cast<size_t>(args.slice_size) * sizeof(float);
  CHECK_LE(shared, static_cast<size_t>(kMostShared) - 1024);
  const Grid grid{.blocks = dim3(cluster, static_cast<unsigned>(rows)),
                  .threads = kSampleThreads,
                  .shared_bytes = shared,
                  .cluster = dim3(cluster)};
  Launch(device, grid, SampleKernel<kAligned>, args);
}

}  // namespace

// Everything fits into shared memory.
int64_t SampleSpaceBytes(int32_t, int64_t) { return 0; }

void Sample(const SampleParams& p, void*, const Device& device) {
  CHECK(p.logits.dtype == DType::kF32 && p.logits.rank == 2);
  const int64_t rows = p.logits.dim[0], vocab = p.logits.dim[1];
  if (rows == 0) return;
  CHECK(vocab > 0 && vocab < int64_t{1} << 24);
  const int cluster = ClusterSize(vocab, rows);
  const int64_t slice = (vocab + cluster - 1) / cluster;
  const SampleArgs args{
      .logits = p.logits.ptr<float>(),
      .stride = p.logits.row_stride,
      .vocab = static_cast<int32_t>(vocab),
      .slice_size = static_cast<int32_t>((slice + kSliceUnit - 1) / kSliceUnit * kSliceUnit),
      .jobs = p.jobs,
      .results = p.results};
  const bool aligned = reinterpret_cast<uintptr_t>(p.logits.data) % 16 == 0 &&
                       p.logits.row_stride % 4 == 0 && vocab % 4 == 0;
  if (aligned) {
    LaunchSample<true>(args, cluster, rows, device);
  } else {
    LaunchSample<false>(args, cluster, rows, device);
  }
}

}  // namespace quire::cuda
