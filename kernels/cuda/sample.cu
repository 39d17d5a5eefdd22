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

// The largest of a thread's logits so far, and in which four it is first.
struct Seen {
  float top = -kInfinity;
  float any = -kInfinity;  // NaN once there was one
  int32_t at = -1;

  __device__ void Take(const float4& logits, int32_t four) {
    const float top_four =
        LargerOrNan(LargerOrNan(logits.x, logits.y), LargerOrNan(logits.z, logits.w));
    any = LargerOrNan(any, top_four);
    if (top_four > top) {
      top = top_four;
      at = four;
    }
  }
  __device__ bool bad() const { return !(any < kInfinity); }
};

// Tells every block what this one has seen of its logits, and of the raw ones.
__device__ void TellExtremes(const Seen& seen, const Seen& raw, const Cluster& cluster,
                             SampleShared& shared) {
  const Slice slice = shared.row.slice;
  int32_t token = slice.first;
  if (seen.at >= 0) {
    const float4 four = FourAt(slice, seen.at);
    token += seen.at;
    token += four.x == seen.top ? 0 : four.y == seen.top ? 1 : four.z == seen.top ? 2 : 3;
  }
  const Extremes mine = {Scored(seen.top, token), raw.top, seen.bad() || raw.bad()};
  const Extremes extremes = OverBlock(mine, shared.warp_extremes);
  if (threadIdx.x < cluster.size()) cluster.Tell(shared.extremes, extremes, threadIdx.x);
}

// Reads the slice's logits into shared memory.
template <bool kAligned>
__device__ void ReadSlice(const Cluster& cluster, SampleShared& shared) {
  const Slice slice = shared.row.slice;
  EachFour(slice, [&](int i) { FetchFour<kAligned>(slice, i); });
  AwaitFetched();
  Seen seen;
  EachFour(slice, [&](int i) { seen.Take(FourAt(slice, i), i); });
  TellExtremes(seen, seen, cluster, shared);
}

// The same with the logits modified as marked in shared memory.
template <bool kAligned>
__device__ __noinline__ void ReadModified(const Cluster& cluster, SampleShared& shared) {
  const SampleJob& job = shared.job;
  const Slice slice = shared.row.slice;
  Seen seen, raw_seen;
  EachFour(slice, [&](int i) {
    const float4 raw = RawFour<kAligned>(slice, slice.first + i);
    raw_seen.Take(raw, i);
    const float4 mark = FourAt(slice, i);
    const float4 logits = {Modified(raw.x, __float_as_uint(mark.x), job),
                           Modified(raw.y, __float_as_uint(mark.y), job),
                           Modified(raw.z, __float_as_uint(mark.z), job),
                           Modified(raw.w, __float_as_uint(mark.w), job)};
    seen.Take(logits, i);
    FourAt(slice, i) = logits;
  });
  TellExtremes(seen, raw_seen, cluster, shared);
}

// The slice's share of the row's sums.
struct Masses {
  uint64_t raw = 0;     // of the raw logits
  uint64_t scaled = 0;  // of those to draw from
};

// Mass of the slice's raw logits. Unmodified ones are read from shared memory, where they still
// are.
template <bool kAligned>
__device__ Masses WeighRaw(const SampleShared& shared) {
  const Row row = shared.row;
  Masses masses;
  EachFour(row.slice, [&](int i) {
    const float4 raw =
        row.modified ? RawFour<kAligned>(row.slice, row.slice.first + i) : FourAt(row.slice, i);
    masses.raw += MassOf(raw - row.extremes.raw_top);
  });
  return masses;
}

// What is done to logits on their way to z = (logit - top) / temperature.
struct Scaling {
  float top;
  Divisor temperature;
  bool same;      // z is the raw logit less the raw top
  bool weighs;    // their mass is wanted
  float least_z;  // tokens of no less are counted in bins; above 0: none
};

// Scales the slice, and does everything that one pass can: weighs it, raw and scaled, and counts it
// in linear bins.
template <bool kAligned>
__device__ Masses Weigh(const Scaling& scaling, SampleShared& shared) {
  const Row row = shared.row;
  Masses masses;
  EachFour(row.slice, [&](int i) {
    const float4 logits = FourAt(row.slice, i);
    const float4 raw = row.modified ? RawFour<kAligned>(row.slice, row.slice.first + i) : logits;
    float4 z = raw - row.extremes.raw_top;
    masses.raw += MassOf(z);
    if (!scaling.same) {
      z = scaling.temperature.Divide(logits - scaling.top);
      if (scaling.weighs) masses.scaled += MassOf(z);
    }
    FourAt(row.slice, i) = z;
    EachOf(z, [&](float one, int) {
      if (one >= scaling.least_z) atomicAdd(&shared.bins[LinearBinOf(one)], 1u);
    });
  });
  if (scaling.same) masses.scaled = masses.raw;
  return masses;
}

// Adds the slice's bins to the row's.
__device__ void AddBins(const Cluster& cluster, SampleShared& shared) {
  for (int b = threadIdx.x; b < kBins; b += kSampleThreads) {
    if (shared.bins[b] == 0) continue;
    atomicAdd(cluster.At(&shared.row_bins[b], 0), shared.bins[b]);
    shared.bins[b] = 0;
  }
}

// Counts the slice's tokens as ordered, into the first block's bins of the row, and tells it their
// mass.
__device__ __noinline__ void Count(const Cluster& cluster, SampleShared& shared) {
  const Slice slice = shared.row.slice;
  const Orders orders = shared.orders;
  const Bins bins = orders.bins;
  const uint32_t span = bins.last - bins.first;
  const uint32_t mass_begin = orders.mass_begin, mass_span = orders.mass_end - mass_begin;
  uint64_t mass = 0;
  const auto weighed = [&](float z) { return KeyOf(z) - mass_begin < mass_span ? z : -kInfinity; };
  EachFour(slice, [&](int i) {
    const float4 z = FourAt(slice, i);
    mass += MassOf(float4{weighed(z.x), weighed(z.y), weighed(z.z), weighed(z.w)});
    EachOf(z, [&](float one, int) {
      const uint32_t key = KeyOf(one);
      if (key - bins.first <= span) atomicAdd(&shared.bins[bins.Of(key)], 1u);
    });
  });
  mass = BlockTotal(mass, shared.warp_mass);  // a barrier: the bins are complete
  if (threadIdx.x == 0) cluster.Tell(shared.mass, mass, 0);
  AddBins(cluster, shared);
}

// The first block's part of a search: from what was counted, what all do next.
__device__ __noinline__ void Direct(const Cluster& cluster, SampleShared& shared) {
  const float top_p = shared.job.params.top_p;
  __shared__ Orders next;
  __shared__ bool usable;
  const Orders done = shared.orders;
  if (threadIdx.x < 32) {
    const uint64_t mass = TotalOf(shared.mass, cluster.size());
    if (threadIdx.x == 0) {
      usable = !shared.search.by_mass || TakeMass(done, mass, top_p, shared.search, &next);
    }
  }
  __syncthreads();
  if (usable) FindCrossing(shared.row_bins, done.bins, shared.search, &shared.found);
  __syncthreads();
  if (usable && threadIdx.x == 0) {
    next = shared.search.by_mass ? AfterMass(done, shared.found, shared.search)
                                 : AfterRank(done, shared.found, top_p, shared.search);
  }
  for (int b = threadIdx.x; b < kBins; b += kSampleThreads) shared.row_bins[b] = 0;
  __syncthreads();
  if (threadIdx.x < cluster.size()) *cluster.At(&shared.orders, threadIdx.x) = next;
}

// Searches the edge of what top_k and top_p keep, after Weigh has counted the slice. At the return
// all blocks have the same orders: to gather few tokens, or to draw from those they have.
__device__ __noinline__ void SearchEdge(const Cluster& cluster, SampleShared& shared) {
  AddBins(cluster, shared);
  cluster.Sync();
  while (true) {
    if (cluster.rank() == 0) Direct(cluster, shared);
    cluster.Sync();
    if (shared.orders.next != Next::kCount) return;
    Count(cluster, shared);
    cluster.Sync();
  }
}

// Hands the slice's tokens as far as the last key to the first block.
__device__ __noinline__ void Gather(const Cluster& cluster, SampleShared& shared) {
  const Slice slice = shared.row.slice;
  const uint32_t last_key = shared.orders.last_key;
  EachFour(slice, [&](int i) {
    EachOf(FourAt(slice, i), [&](float z, int j) {
      if (KeyOf(z) > last_key) return;
      const uint32_t at = atomicAdd(cluster.At(&shared.num_few, 0), 1u);
      DeviceCheck(at < kFew);
      *cluster.At(&shared.few.z[at], 0) = z;
      *cluster.At(&shared.few.token[at], 0) = slice.first + i + j;
    });
  });
}

// Whether top_k says anything.
__device__ bool ByRank(const SampleRow& params, int32_t vocab) {
  return params.top_k > 0 && params.top_k < vocab;
}

// Draws from the few tokens gathered, each compared with all others: a thread a token.
__device__ __noinline__ uint64_t DrawFew(SampleShared& shared) {
  const SampleRow& params = shared.job.params;
  const int32_t vocab = shared.row.slice.vocab;
  const uint32_t n = shared.num_few, mine = threadIdx.x;
  const float z = mine < n ? shared.few.z[mine] : -kInfinity;
  if (mine < n) shared.few.mass[mine] = MassOf(z);
  __syncthreads();
  uint32_t num_above = 0;
  uint64_t above = 0;
  for (uint32_t i = 0; mine < n && i < n; ++i) {
    if (shared.few.z[i] > z) {
      ++num_above;
      above += shared.few.mass[i];
    }
  }
  // A search by mass has dropped what top_k drops.
  bool kept =
      mine < n && (!ByRank(params, vocab) || num_above < static_cast<uint32_t>(params.top_k));
  if (params.top_p < 1.0f) {
    uint64_t wanted = shared.search.wanted;
    if (!shared.search.by_mass) {
      const uint64_t mass = kept ? shared.few.mass[mine] : 0;
      wanted = Wanted(params.top_p, BlockTotal(mass, shared.warp_mass));
    }
    kept = kept && above < wanted;
  }
  if (params.min_p > 0.0f) kept = kept && !(ExactExp(z) < params.min_p);
  uint64_t best = 0;
  if (kept) {
    const uint32_t token = shared.few.token[mine];
    const auto position = static_cast<uint32_t>(shared.job.num_known);
    best = Scored(z + GumbelNoise(params.seed, position, token), token);
  }
  return BlockLargest(best, shared.warp_drawn);
}

// No less than z and the noise that a random word stands for: with v the word in units of 2^-32,
// -ln(-ln(1 - v)) <= -ln(v), and a margin.
__device__ __forceinline__ float ScoreBound(float z, uint32_t word) {
  constexpr float kLn2 = 0.693147182f;
  return fmaf(__log2f(static_cast<float>(word)), -kLn2, z + (32 * kLn2 + 1e-3f));
}
// No noise is larger: -ln(2^-33).
constexpr float kMostNoise = 22.9f;

// Draws from the slice's tokens as far as `last_key`. A lane takes the four tokens of one random
// counter; tokens whose noise cannot lift them over what the slice has reached are passed over.
__device__ uint64_t DrawSlice(uint32_t last_key, SampleShared& shared) {
  const Slice slice = shared.row.slice;
  const SampleRow& params = shared.job.params;
  const uint64_t seed = params.seed;
  const float min_p = params.min_p;
  const auto position = static_cast<uint32_t>(shared.job.num_known);
  const int lane = threadIdx.x % 32;
  const volatile uint32_t& reached = shared.floor;
  float min_z = FromKey(min(last_key, kLastKey - 1));
  // Far below what min_p keeps, whatever the rounding.
  if (min_p > 0.0f) min_z = fmaxf(min_z, __logf(min_p) - 0.01f);
  uint64_t best = 0;
  for (int pair = threadIdx.x / 32; pair * kSliceUnit < slice.size; pair += kSampleWarps) {
    const int at = pair * kSliceUnit + lane / 16 * 64 + lane % 16;
    float z[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) z[i] = slice.values[at + i * 16];
    const float floor = FromOrdered(reached);
    const float least = fmaxf(min_z, floor - kMostNoise);
    const bool any = fmaxf(fmaxf(z[0], z[1]), fmaxf(z[2], z[3])) >= least;
    if (!__any_sync(kAllLanes, any)) continue;
    const uint32_t token = slice.first + at;
    const Philox4 random = Philox4x32(seed, {{token / 64 * 16 + token % 16, position, 0, 0}});
    uint64_t before = best;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (z[i] < least || ScoreBound(z[i], random.word[i]) < floor) continue;
      if (min_p > 0.0f && ExactExp(z[i]) < min_p) continue;
      const float noise = -ExactLog(ExactExponential(random.word[i]));
      best = Larger(best, Scored(z[i] + noise, token + i * 16));
    }
    if (!__any_sync(kAllLanes, best != before)) continue;
    const uint32_t of_warp = __reduce_max_sync(kAllLanes, static_cast<uint32_t>(best >> 32));
    if (lane == 0 && of_warp > reached) atomicMax(&shared.floor, of_warp);
  }
  return BlockLargest(best, shared.warp_drawn);
}

// The first search of a row: by rank for top_k, otherwise by mass for top_p, among the tokens that
// Weigh counts. Tokens of which even a whole vocabulary would not weigh what top_p leaves out, with
// a margin, are behind the edge for sure and are not counted.
__device__ float BeginSearch(const SampleRow& params, int32_t vocab, SampleShared& shared) {
  const bool by_rank = ByRank(params, vocab);
  const float least_z = by_rank ? FromKey(kLastKey - 1)
                                : __logf((1.0f - params.top_p) / static_cast<float>(vocab)) - 0.05f;
  if (threadIdx.x == 0) {
    shared.search = {.by_mass = !by_rank,
                     .rank = by_rank ? static_cast<uint32_t>(params.top_k) : 0};
    shared.orders = {Next::kCount, 0, LinearBins(KeyOf(least_z)), 0, 0};
  }
  return least_z;
}

// Draws a token, which the first block returns, and tells the first block the raw logits' mass.
template <bool kAligned>
__device__ int32_t Draw(const Cluster& cluster, SampleShared& shared) {
  const SampleRow& params = shared.job.params;
  const int32_t vocab = shared.row.slice.vocab;
  const bool by_rank = ByRank(params, vocab), filtered = by_rank || params.top_p < 1.0f;
  const Masses slice =
      Weigh<kAligned>({.top = ScoreOf(shared.row.extremes.best),
                       .temperature = Divisor(params.temperature),
                       .same = params.temperature == 1.0f && !shared.row.modified,
                       .weighs = filtered && !by_rank,
                       .least_z = filtered ? BeginSearch(params, vocab, shared) : kInfinity},
                      shared);
  const uint64_t raw_mass = BlockTotal(slice.raw, shared.warp_raw_mass);
  if (threadIdx.x == 0) cluster.Tell(shared.raw_mass, raw_mass, 0);
  uint32_t last_key = kLastKey;
  if (filtered) {
    const uint64_t mass = BlockTotal(slice.scaled, shared.warp_mass);
    if (threadIdx.x == 0) cluster.Tell(shared.mass, mass, 0);
    SearchEdge(cluster, shared);
    last_key = shared.orders.last_key;
    if (shared.orders.next == Next::kGather) {
      Gather(cluster, shared);
      cluster.Sync();
      return cluster.rank() == 0 ? TokenOf(DrawFew(shared)) : 0;
    }
  }
  const uint64_t best = DrawSlice(last_key, shared);
  if (threadIdx.x == 0) cluster.Tell(shared.drawn, best, 0);
  cluster.Sync();
  return TokenOf(LargestOf(shared.drawn, cluster.size()));
}

// The first block's last word, by its first warp. The logits in device memory are still the raw
// ones.
__device__ SampleResult Answer(const Cluster& cluster, const SampleShared& shared, int32_t token) {
  const auto raw_mass = static_cast<double>(TotalOf(shared.raw_mass, cluster.size()));
  const float log_mass = static_cast<float>(log(raw_mass * 0x1p-40));
  const Row& row = shared.row;
  return {.token = token,
          .logprob = row.slice.row[token] - row.extremes.raw_top - log_mass,
          .nonfinite = 0};
}

// What a block knows before it reads logits.
__device__ void Begin(const SampleArgs& a, const Cluster& cluster, SampleShared& shared) {
  const auto* job_words = reinterpret_cast<const uint64_t*>(a.jobs + blockIdx.y);
  if (threadIdx.x < sizeof(SampleJob) / 8) {
    reinterpret_cast<uint64_t*>(&shared.job)[threadIdx.x] = job_words[threadIdx.x];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.row.slice = {.row = a.logits + blockIdx.y * a.stride,
                        .values = reinterpret_cast<float*>(&shared + 1),
                        .first = static_cast<int32_t>(cluster.rank()) * a.slice_size,
                        .size = a.slice_size,
                        .vocab = a.vocab};
    shared.row.modified = IsModified(shared.job);
  }
  __syncthreads();
}

template <bool kAligned>
__global__ void __launch_bounds__(kSampleThreads, 3) SampleKernel(SampleArgs a) {
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
  Begin(a, cluster, shared);
  cluster.Wait();
  if (shared.row.modified) {
    MarkTokens(cluster, shared);
    ReadModified<kAligned>(cluster, shared);
  } else {
    ReadSlice<kAligned>(cluster, shared);
  }
  cluster.Sync();
  const Extremes extremes = ExtremesOf(shared.extremes, cluster.size());
  if (threadIdx.x == 0) shared.row.extremes = extremes;
  __syncthreads();

  SampleResult result = {.token = 0, .logprob = 0.0f, .nonfinite = 1};
  if (extremes.bad == 0 && extremes.raw_top > -kInfinity && ScoreOf(extremes.best) > -kInfinity) {
    int32_t token = TokenOf(extremes.best);
    if (shared.job.params.temperature != 0.0f) {
      token = Draw<kAligned>(cluster, shared);
    } else {
      const uint64_t mass = BlockTotal(WeighRaw<kAligned>(shared).raw, shared.warp_raw_mass);
      if (threadIdx.x == 0) cluster.Tell(shared.raw_mass, mass, 0);
      cluster.Sync();
    }
    if (cluster.rank() == 0 && threadIdx.x < 32) result = Answer(cluster, shared, token);
  }
  if (cluster.rank() == 0 && threadIdx.x == 0) {
    a.results[blockIdx.y] = result;
    if (shared.job.drawn != nullptr) *shared.job.drawn = result.token;
  }
}

// Blocks a row. Results do not depend on it.
int ClusterSize(int64_t vocab, int64_t rows) {
  // Few rows leave multiprocessors free; of slices of 100 KB two still fit into one.
  const int64_t slice = rows <= 16 ? 8192 : 24576;
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
