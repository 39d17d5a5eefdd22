// Sample: a cluster of blocks samples each row. It reads the logits once and keeps them in shared
// memory. sampling.h defines the draw by values and integer sums, and the arithmetic is that of
// sampling_math.h without fused products and sums: the token is the one the CPU draws.
#include <algorithm>

#include "kernels/ceil_div.h"
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/sample/sample_marks.cuh"
#include "kernels/cuda/sample/sample_narrow.cuh"
#include "kernels/device_limits.h"

namespace quire::cuda {
namespace {

struct SampleArgs {
  float* logits;
  int64_t stride;
  int32_t vocab;
  int32_t slice_size;
  const SampleJob* jobs;
  SampleResult* results;
};

// The largest of a thread's logits so far, and the first group of four that has it.
struct Seen {
  float top = -kInfinity;
  float any = -kInfinity;  // NaN after any logit was NaN
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

// Sends to every block the extremes of this block's logits, modified and raw.
__device__ void SendExtremes(const Seen& seen, const Seen& raw, Cluster cluster) {
  SampleShared& shared = Shared();
  int32_t token = shared.slice.first;
  if (seen.at >= 0) {
    const float4 four = FourAt(seen.at);
    token += seen.at;
    token += four.x == seen.top ? 0 : four.y == seen.top ? 1 : four.z == seen.top ? 2 : 3;
  }
  const Extremes mine = {Scored(seen.top, token), raw.top, seen.bad() || raw.bad()};
  const Extremes extremes = OverBlock(mine, shared.warp_extremes);
  if (threadIdx.x < cluster.size()) {
    cluster.Send(extremes, &shared.block_extremes[cluster.rank()], shared.extremes_box,
                 threadIdx.x);
  }
}

// Reads the slice's logits into shared memory.
template <bool kAligned>
__device__ void ReadSlice(Cluster cluster) {
  FetchSlice<kAligned>();
  Seen seen;
  EachFour([&](int i) { seen.Take(FourAt(i), i); });
  SendExtremes(seen, seen, cluster);
}

// Reads the slice's logits and modifies them by the marks in shared memory.
template <bool kAligned>
__device__ __noinline__ void ReadModified(Cluster cluster) {
  const SampleJob& job = Shared().job;
  const Slice slice = Shared().slice;
  Seen seen, raw_seen;
  EachFour([&](int i) {
    const float4 raw = RawFour<kAligned>(slice, slice.first + i);
    raw_seen.Take(raw, i);
    const float4 mark = FourAt(i);
    const int32_t first = slice.first + i;
    const float4 logits = {Modified(raw.x, __float_as_uint(mark.x), first, job),
                           Modified(raw.y, __float_as_uint(mark.y), first + 1, job),
                           Modified(raw.z, __float_as_uint(mark.z), first + 2, job),
                           Modified(raw.w, __float_as_uint(mark.w), first + 3, job)};
    seen.Take(logits, i);
    FourAt(i) = logits;
  });
  SendExtremes(seen, raw_seen, cluster);
}

// Mass of the slice's raw logits. Unmodified logits are still in shared memory and are read there.
template <bool kAligned>
__device__ uint64_t WeighRaw() {
  const Slice slice = Shared().slice;
  const float top = Shared().extremes.raw_top;
  const bool modified = Shared().modified;
  uint64_t mass = 0;
  EachFour([&](int i) {
    const float4 raw = modified ? RawFour<kAligned>(slice, slice.first + i) : FourAt(i);
    mass += MassOf(raw - top);
  });
  return mass;
}

// How a pass turns logits into z = (logit - top) / temperature.
struct Scaling {
  float top;
  float temperature;
  bool weighs;     // also sums the mass of z
  float behind_z;  // smaller z count in this one's bin
};

__device__ __forceinline__ void CountLinear(const float4& z, float behind_z) {
  EachOf(z,
         [&](float one, int) { atomicAdd(&Shared().bins[LinearBinOf(fmaxf(one, behind_z))], 1u); });
}

// Scales the slice in one pass, sums its raw and scaled mass, and counts it in linear bins.
// WeighPlain is for raw logits at temperature 1, where the raw mass is the scaled mass.
__device__ Masses WeighPlain(const Scaling& scaling) {
  uint64_t mass = 0;
  EachFour([&](int i) {
    const float4 z = FourAt(i) - scaling.top;
    FourAt(i) = z;
    mass += MassOf(z);
    CountLinear(z, scaling.behind_z);
  });
  return {mass, mass};
}

template <bool kAligned>
__device__ Masses Weigh(const Scaling& scaling) {
  const Slice slice = Shared().slice;
  const float raw_top = Shared().extremes.raw_top;
  const bool modified = Shared().modified;
  const Divisor temperature(scaling.temperature);
  Masses masses = {0, 0};
  EachFour([&](int i) {
    const float4 logits = FourAt(i);
    const float4 raw = modified ? RawFour<kAligned>(slice, slice.first + i) : logits;
    const float4 z = temperature.Divide(logits - scaling.top);
    FourAt(i) = z;
    masses.raw += MassOf(raw - raw_top);
    if (scaling.weighs) masses.scaled += MassOf(z);
    CountLinear(z, scaling.behind_z);
  });
  return masses;
}

// Adds the slice's bins to the row's bins in the first block and sends it the slice's mass. Each
// warp announces the bytes that it sent.
__device__ void SendCount(const Masses& masses, Cluster cluster) {
  SampleShared& shared = Shared();
  const uint32_t last_bin = shared.orders.bins.Of(shared.orders.bins.last);
  uint32_t bytes = 0;
  for (uint32_t b = threadIdx.x; b < kBins; b += kSampleThreads) {
    const uint32_t count = shared.bins[b];
    if (count == 0) continue;
    shared.bins[b] = 0;
    if (b > last_bin) continue;
    cluster.Add(count, &shared.row_bins[b], shared.counts_box, 0);
    bytes += sizeof(count);
  }
  if (threadIdx.x == 0) {
    cluster.Send(masses, &shared.block_masses[cluster.rank()], shared.counts_box, 0);
    bytes += sizeof(masses);
  }
  bytes = __reduce_add_sync(kAllLanes, bytes);
  if (threadIdx.x % 32 == 0) cluster.Announce(bytes, shared.counts_box, 0);
}

// Counts the slice's tokens by the current orders.
__device__ __noinline__ void Count(Cluster cluster) {
  SampleShared& shared = Shared();
  const Orders orders = shared.orders;
  const Bins bins = orders.bins;
  const uint32_t span = bins.last - bins.first;
  const uint32_t mass_begin = orders.mass_begin, mass_span = orders.mass_end - mass_begin;
  const auto weighed = [&](float z) { return KeyOf(z) - mass_begin < mass_span ? z : -kInfinity; };
  Masses masses = {0, 0};
  EachFour([&](int i) {
    const float4 z = FourAt(i);
    masses.scaled += MassOf(float4{weighed(z.x), weighed(z.y), weighed(z.z), weighed(z.w)});
    EachOf(z, [&](float one, int) {
      const uint32_t key = KeyOf(one);
      if (key - bins.first <= span) atomicAdd(&shared.bins[bins.Of(key)], 1u);
    });
  });
  masses = OverBlock(masses, shared.warp_masses);  // a barrier: the bins are complete
  SendCount({shared.masses.raw, masses.scaled}, cluster);
}

// The first block's part of a search: decides the next orders of all blocks from the counts.
__device__ __noinline__ void Direct(Cluster cluster) {
  SampleShared& shared = Shared();
  const float top_p = shared.job.params.top_p;
  if (threadIdx.x < 32) {
    const uint64_t mass = OverTable(shared.block_masses, cluster.size()).scaled;
    if (threadIdx.x == 0) {
      shared.behind = !shared.search.by_mass ||
                      TakeMass(shared.orders, mass, top_p, shared.search, &shared.next);
    }
  }
  __syncthreads();
  if (shared.behind) {
    FindCrossing(shared.row_bins, shared.orders.bins, shared.search, &shared.found);
  } else {
    for (int b = threadIdx.x; b < kBins; b += kSampleThreads) shared.row_bins[b] = 0;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  if (threadIdx.x == 0 && shared.behind) {
    shared.next = shared.search.by_mass
                      ? AfterMass(shared.orders, shared.found, shared.search)
                      : AfterRank(shared.orders, shared.found, top_p, shared.search);
  }
  if (threadIdx.x == 0 && shared.next.next == Next::kGather) {
    shared.few_box.Expect(shared.next.num_kept * uint32_t{sizeof(Candidate)});
  }
  __syncwarp();
  if (threadIdx.x < cluster.size()) {
    cluster.Send(shared.next, &shared.orders, shared.orders_box, threadIdx.x);
  }
}

// Searches the last token that top_k and top_p keep, after the first count of the slice. At the
// return all blocks have the same orders: to gather few tokens, or to draw from their own.
__device__ __noinline__ void SearchEdge(Cluster cluster) {
  SampleShared& shared = Shared();
  SendCount(shared.masses, cluster);
  for (uint32_t turn = 0;; ++turn) {
    if (cluster.rank() == 0) {
      shared.counts_box.Await(turn);
      Direct(cluster);
    }
    shared.orders_box.Await(turn);
    if (shared.orders.next != Next::kCount) return;
    if (threadIdx.x == 0) shared.orders_box.Expect(sizeof(Orders));
    Count(cluster);
  }
}

// Sends the slice's tokens up to the last key to the first block.
__device__ __noinline__ void Gather(Cluster cluster) {
  SampleShared& shared = Shared();
  const float least_z = FromKey(shared.orders.last_key);
  const int32_t first = shared.slice.first;
  EachFour([&](int i) {
    const float4 four = FourAt(i);
    if (Largest(four) < least_z) return;
    EachOf(four, [&](float z, int j) {
      if (z < least_z) return;
      const uint32_t at = atomicAdd(cluster.At(&shared.num_few, 0), 1u);
      DeviceCheck(at < kFew);
      const Candidate candidate = {z, first + i + j};
      cluster.Send(candidate, &shared.few.candidate[at], shared.few_box, 0);
    });
  });
}

// Draws from the few gathered tokens. One thread a token compares it with all others.
__device__ __noinline__ uint64_t DrawFew() {
  SampleShared& shared = Shared();
  const SampleRow& params = shared.job.params;
  const uint32_t n = shared.num_few, mine = threadIdx.x;
  const float z = mine < n ? shared.few.candidate[mine].z : -kInfinity;
  if (mine < n) shared.few.mass[mine] = MassOf(z);
  __syncthreads();
  uint32_t num_above = 0;
  uint64_t above = 0;
  for (uint32_t i = 0; mine < n && i < n; ++i) {
    if (shared.few.candidate[i].z > z) {
      ++num_above;
      above += shared.few.mass[i];
    }
  }
  // A search by mass has already dropped the tokens that top_k drops.
  bool kept = mine < n && (!ByRank(params, shared.slice.vocab) ||
                           num_above < static_cast<uint32_t>(params.top_k));
  if (params.top_p < 1.0f) {
    uint64_t wanted = shared.search.wanted;
    if (!shared.search.by_mass) {
      const Masses masses = {0, kept ? shared.few.mass[mine] : 0};
      wanted = MassOfShare(params.top_p, OverBlock(masses, shared.warp_masses).scaled);
    }
    kept = kept && above < wanted;
  }
  if (params.min_p > 0.0f) kept = kept && !(ExactExp(z) < params.min_p);
  uint64_t best = 0;
  if (kept) {
    const uint32_t token = shared.few.candidate[mine].token;
    const auto position = static_cast<uint32_t>(shared.job.num_known);
    best = Scored(z + GumbelNoise(params.seed, position, token), token);
  }
  return OverBlock(best, shared.warp_best);
}

// An upper bound, less kNoiseScale, of z plus the noise of a random word: with v the word in units
// of 2^-32, -ln(-ln(1 - v)) <= -ln(v), and a margin.
constexpr float kLn2 = 0.693147182f;
constexpr float kNoiseScale = 32 * kLn2 + 1e-3f;
__device__ __forceinline__ float ScoreBound(float z, uint32_t word) {
  return fmaf(RoughLog2(static_cast<float>(word)), -kLn2, z);
}
// The largest noise: -ln(2^-33).
constexpr float kMostNoise = 22.9f;

// The values of the slice to draw from, those up to last_key, and their scale: z is (value - top) /
// temperature. Values that are z already have top 0 and temperature 1.
struct Drawing {
  uint32_t last_key;
  float top, temperature;
};

// Draws from the slice's tokens. A lane takes the four tokens of one random counter and skips
// tokens whose noise cannot lift them over the best score of the slice so far. The skip uses a z
// that is rounded differently where values are not yet scaled; the bounds have margins for that.
__device__ uint64_t DrawSlice(const Drawing& drawing) {
  SampleShared& shared = Shared();
  const SampleRow& params = shared.job.params;
  const uint64_t seed = params.seed;
  const float min_p = params.min_p, top = drawing.top;
  const float scale = fminf(1.0f / drawing.temperature, 1e30f);  // finite, so 0 times it is 0
  const auto position = static_cast<uint32_t>(shared.job.num_known);
  const int lane = threadIdx.x % 32, size = shared.slice.size, first = shared.slice.first;
  const volatile uint32_t& reached = shared.floor;
  float min_z = FromKey(min(drawing.last_key, kLastKey - 1));
  // With a margin of 0.01 in z, far more than any rounding.
  if (min_p > 0.0f) min_z = fmaxf(min_z, __logf(min_p) - 0.01f);
  uint64_t best = 0;
  for (int pair = threadIdx.x / 32; pair * kSliceUnit < size; pair += kSampleWarps) {
    const int at = pair * kSliceUnit + lane / 16 * 64 + lane % 16;
    const float4 values = {Values()[at], Values()[at + 16], Values()[at + 32], Values()[at + 48]};
    const float4 less = values - top;
    const float4 z = {less.x * scale, less.y * scale, less.z * scale, less.w * scale};
    const float floor = FromOrdered(reached);
    const float least = fmaxf(min_z, floor - kMostNoise);
    if (!__any_sync(kAllLanes, Largest(z) >= least)) continue;
    const uint32_t token = first + at;
    const Philox4 random = Philox4x32(seed, {{token / 64 * 16 + token % 16, position, 0, 0}});
    const float4 bound = {ScoreBound(z.x, random.word[0]), ScoreBound(z.y, random.word[1]),
                          ScoreBound(z.z, random.word[2]), ScoreBound(z.w, random.word[3])};
    const bool may = Largest(bound) >= floor - kNoiseScale;
    if (!__any_sync(kAllLanes, may)) continue;
    if (may) {
      EachOf(z, [&](float nearly, int i) {
        if (nearly < least) return;
        const float exact = (Values()[at + i * 16] - top) / drawing.temperature;
        if (min_p > 0.0f && ExactExp(exact) < min_p) return;
        const float noise = -ExactLog(ExactExponential(random.word[i]));
        best = Larger(best, Scored(exact + noise, token + i * 16));
      });
    }
    const uint32_t of_warp = __reduce_max_sync(kAllLanes, static_cast<uint32_t>(best >> 32));
    if (lane == 0 && of_warp > reached) atomicMax(&shared.floor, of_warp);
  }
  return OverBlock(best, shared.warp_best);
}

// Begins a row's first search: by rank for top_k, otherwise by mass for top_p. Returns the last
// linear bin to search. A token so light that a whole vocabulary of it would weigh less than top_p
// leaves out, with a margin, is certainly dropped.
__device__ uint32_t BeginSearch(const SampleRow& params, bool by_rank) {
  SampleShared& shared = Shared();
  uint32_t last_bin = kLastLinear;
  if (!by_rank) {
    const float least_z = __logf((1.0f - params.top_p) / static_cast<float>(shared.slice.vocab));
    last_bin = LinearBinOf(fmaxf(least_z - 0.05f, -31.9f));
  }
  if (threadIdx.x == 0) {
    shared.search = {.by_mass = !by_rank,
                     .rank = by_rank ? static_cast<uint32_t>(params.top_k) : 0};
    shared.orders = CountOver(LinearBins(last_bin), 0, 0);
  }
  return last_bin;
}

// Sends this block's verdict to the first block, which returns the row's verdict.
__device__ Verdict Conclude(uint64_t best, Cluster cluster) {
  SampleShared& shared = Shared();
  if (threadIdx.x == 0) {
    const Verdict mine = {shared.masses.raw, best};
    cluster.Send(mine, &shared.verdicts[cluster.rank()], shared.verdicts_box, 0);
  }
  if (cluster.rank() != 0) return {};
  shared.verdicts_box.Await(0);
  return OverTable(shared.verdicts, cluster.size());
}

// Draws a token from those that top_k and top_p keep. The first block returns the row's verdict.
template <bool kAligned>
__device__ Verdict DrawFiltered(bool by_rank, Cluster cluster) {
  SampleShared& shared = Shared();
  const SampleRow& params = shared.job.params;
  {
    const uint32_t last_bin = BeginSearch(params, by_rank);
    const Scaling scaling = {.top = ScoreOf(shared.extremes.best),
                             .temperature = params.temperature,
                             .weighs = !by_rank,
                             .behind_z = (static_cast<float>(last_bin) + 1.5f) / -32.0f};
    const bool plain = params.temperature == 1.0f && !shared.modified;
    const Masses masses =
        OverBlock(plain ? WeighPlain(scaling) : Weigh<kAligned>(scaling), shared.warp_masses);
    if (threadIdx.x == 0) shared.masses = masses;
  }
  __syncthreads();
  SearchEdge(cluster);
  if (shared.orders.next == Next::kDraw) {
    return Conclude(DrawSlice({shared.orders.last_key, 0.0f, 1.0f}), cluster);
  }
  Gather(cluster);
  if (cluster.rank() != 0) return {};
  shared.few_box.Await(0);
  const uint64_t best = DrawFew();
  return {OverTable(shared.block_masses, cluster.size()).raw, best};
}

// Takes the top token (greedy), or draws one from all tokens. The first block returns the verdict.
template <bool kAligned>
__device__ Verdict TakeOrDraw(Cluster cluster) {
  SampleShared& shared = Shared();
  const Masses masses = OverBlock({WeighRaw<kAligned>(), 0}, shared.warp_masses);
  if (threadIdx.x == 0) shared.masses = masses;
  const float temperature = shared.job.params.temperature;
  const uint64_t top = shared.extremes.best;
  return Conclude(temperature == 0.0f ? top : DrawSlice({kLastKey, ScoreOf(top), temperature}),
                  cluster);
}

// Draws a token where the filters narrow the row step by step. The first block returns the verdict.
template <bool kAligned>
__device__ Verdict DrawNarrowed(Cluster cluster) {
  SampleShared& shared = Shared();
  const Masses masses = OverBlock({WeighRaw<kAligned>(), 0}, shared.warp_masses);
  if (threadIdx.x == 0) shared.masses = masses;
  Narrow(cluster);
  return Conclude(DrawSlice({kLastKey, 0.0f, 1.0f}), cluster);
}

// Replaces the row's logits in device memory by the block's values, once the first block has read
// what it needs of them.
__device__ __noinline__ void KeepValues(float* row, Cluster cluster) {
  cluster.Sync();
  const Slice slice = Shared().slice;
  const int count = max(min(slice.vocab - slice.first, slice.size), 0);
  for (int i = threadIdx.x; i < count; i += kSampleThreads) row[slice.first + i] = Values()[i];
}

// The result of a row with a verdict. The logits in device memory are still the raw ones.
__device__ SampleResult Answer(const Verdict& verdict) {
  const SampleShared& shared = Shared();
  const auto token = static_cast<int32_t>(TokenOf(verdict.best));
  const auto raw_mass = static_cast<double>(verdict.raw_mass);
  const float log_mass = static_cast<float>(log(raw_mass * 0x1p-40));
  return {.token = token,
          .logprob = shared.slice.row[token] - shared.extremes.raw_top - log_mass,
          .nonfinite = 0};
}

// Initialises shared memory, before the kernel reads any memory of its predecessor.
__device__ void Prepare(Cluster cluster) {
  SampleShared& shared = Shared();
  for (int b = threadIdx.x * 4; b < kBins; b += kSampleThreads * 4) {
    *reinterpret_cast<uint4*>(shared.bins + b) = uint4{};
    *reinterpret_cast<uint4*>(shared.row_bins + b) = uint4{};
  }
  if (threadIdx.x != 0) return;
  shared.floor = Ordered(-kInfinity);
  shared.num_few = 0;
  for (Mailbox* box : {&shared.slice_box, &shared.extremes_box, &shared.orders_box, &shared.few_box,
                       &shared.verdicts_box}) {
    box->Open();
  }
  shared.counts_box.Open(cluster.size() * kSampleWarps);
  FenceBarriers();
  shared.extremes_box.Expect(cluster.size() * sizeof(Extremes));
  shared.orders_box.Expect(sizeof(Orders));
  shared.verdicts_box.Expect(cluster.size() * sizeof(Verdict));
}

// Reads the row's job and sets the block's slice.
__device__ void Begin(const SampleArgs& a, Cluster cluster) {
  SampleShared& shared = Shared();
  const auto* job_words = reinterpret_cast<const uint64_t*>(a.jobs + blockIdx.y);
  if (threadIdx.x < sizeof(SampleJob) / 8) {
    reinterpret_cast<uint64_t*>(&shared.job)[threadIdx.x] = job_words[threadIdx.x];
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.slice = {.row = a.logits + blockIdx.y * a.stride,
                    .first = static_cast<int32_t>(cluster.rank()) * a.slice_size,
                    .size = a.slice_size,
                    .vocab = a.vocab};
    shared.modified = IsModified(shared.job);
  }
  __syncthreads();
}

__device__ uint64_t DeviceNanoseconds() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

// Waits for the row's late mask, which the host writes meanwhile. False if it does not come. One
// thread of the cluster decides, because the word may change between two looks.
__device__ __noinline__ bool AwaitMask(Cluster cluster) {
  SampleShared& shared = Shared();
  if (cluster.rank() == 0 && threadIdx.x == 0) {
    const uint64_t end = DeviceNanoseconds() + kMaskPatienceNs;
    const auto load = [&] {
      uint32_t word;
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                   : "=r"(word)
                   : "l"(shared.job.mask_for)
                   : "memory");
      return word;
    };
    uint32_t word = load();
    while (word == kMaskAwaited && DeviceNanoseconds() < end) {
      __nanosleep(200);
      word = load();
    }
    const bool has_mask = word == static_cast<uint32_t>(shared.job.num_known);
    for (uint32_t i = 0; i < cluster.size(); ++i) *cluster.At(&shared.has_mask, i) = has_mask;
  }
  cluster.Sync();
  return shared.has_mask;
}

// A row without its mask has no draw.
__device__ void AnswerWithoutMask(const SampleArgs& a, Cluster cluster) {
  if (cluster.rank() != 0 || threadIdx.x != 0) return;
  a.results[blockIdx.y] = {.token = 0, .logprob = 0.0f, .nonfinite = SampleResult::kNoMask};
  if (Shared().job.drawn != nullptr) *Shared().job.drawn = 0;
}

template <bool kAligned>
__global__ void __launch_bounds__(kSampleThreads, 3) SampleKernel(SampleArgs a) {
  PdlTrigger();
  SampleShared& shared = Shared();
  Cluster cluster;
  Prepare(cluster);
  cluster.Arrive();  // after Wait all blocks run, and others may write to them
  PdlWait();
  Begin(a, cluster);
  cluster.Wait();
  if (shared.job.mask_for != nullptr && !AwaitMask(cluster)) return AnswerWithoutMask(a, cluster);
  if (shared.modified) {
    MarkTokens(cluster);
    ReadModified<kAligned>(cluster);
  } else {
    ReadSlice<kAligned>(cluster);
  }
  shared.extremes_box.Await(0);
  const Extremes extremes = OverTable(shared.block_extremes, cluster.size());
  if (threadIdx.x == 0) shared.extremes = extremes;
  __syncthreads();

  const bool sound = extremes.bad == 0 && extremes.raw_top > -kInfinity;
  SampleResult result = {.token = 0,
                         .logprob = 0.0f,
                         .nonfinite = sound ? SampleResult::kNoToken : SampleResult::kUnsound};
  if (sound && ScoreOf(extremes.best) > -kInfinity) {
    const SampleRow& params = shared.job.params;
    const bool by_rank = ByRank(params, a.vocab);
    const bool filtered = params.temperature != 0.0f && (by_rank || params.top_p < 1.0f);
    const Verdict verdict = IsNarrowed(shared.job) ? DrawNarrowed<kAligned>(cluster)
                            : filtered             ? DrawFiltered<kAligned>(by_rank, cluster)
                                                   : TakeOrDraw<kAligned>(cluster);
    if (cluster.rank() == 0 && threadIdx.x == 0) result = Answer(verdict);
    if (shared.job.kept == KeptLogits::kProcessed) {
      KeepValues(a.logits + blockIdx.y * a.stride, cluster);
    }
  }
  if (cluster.rank() == 0 && threadIdx.x == 0) {
    a.results[blockIdx.y] = result;
    if (shared.job.drawn != nullptr) *shared.job.drawn = result.token;
  }
}

// Blocks per row. Results do not depend on it.
int ClusterSize(int64_t vocab, int64_t rows) {
  // Few rows leave multiprocessors free, so they get more blocks. Two slices of 100 KB fit in one
  // multiprocessor.
  const int64_t slice = rows <= 16 ? 8192 : 24576;
  int size = 2;  // the smallest cluster
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
  static_assert(sizeof(SampleShared) + kCudaLimits.max_vocab / kMaxCluster * sizeof(float) <=
                kMostShared - 1024);
  static_assert(kCudaLimits.max_vocab % (kMaxCluster * kSliceUnit) == 0);
  static_assert(kCudaLimits.max_context == (kSeenMask + 1) / kSeenInOutput);
  CHECK_LE(shared, static_cast<size_t>(kMostShared) - 1024);
  const Grid grid{.blocks = dim3(cluster, static_cast<unsigned>(rows)),
                  .threads = kSampleThreads,
                  .shared_bytes = shared,
                  .cluster = dim3(cluster)};
  Launch(device, grid, SampleKernel<kAligned>, args);
}

}  // namespace

void Sample(const SampleParams& p, const Device& device) {
  CHECK(p.logits.dtype == DType::kF32 && p.logits.rank == 2);
  const int64_t rows = p.logits.dim[0], vocab = p.logits.dim[1];
  if (rows == 0) return;
  CHECK(vocab > 0 && vocab < int64_t{1} << 24);
  const int cluster = ClusterSize(vocab, rows);
  const int64_t slice = CeilDiv<int64_t>(vocab, cluster);
  const SampleArgs args{.logits = p.logits.ptr<float>(),
                        .stride = p.logits.row_stride,
                        .vocab = static_cast<int32_t>(vocab),
                        .slice_size = static_cast<int32_t>(RoundUp<int64_t>(slice, kSliceUnit)),
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
