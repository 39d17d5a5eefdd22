// Filters that narrow a row step by step, for the few rows that ask for more than top_k, top_p and
// min_p: top_n_sigma, dynamic temperature, typical_p, XTC. A dropped token's value becomes
// -infinity. Each step sums over the cluster, with barriers of all blocks instead of mailboxes.
#pragma once

#include "kernels/cuda/device/block_scan.cuh"
#include "kernels/cuda/sample/sample_row.cuh"

namespace quire::cuda {

// True if top_k restricts the draw.
__device__ __forceinline__ bool ByRank(const SampleRow& params, int32_t vocab) {
  return params.top_k > 0 && params.top_k < vocab;
}

// Only the values of a narrowed row are those of the tokens drawn from.
__device__ __forceinline__ bool IsNarrowed(const SampleJob& job) {
  const SampleRow& params = job.params;
  return params.temperature != 0.0f &&
         (params.top_n_sigma > 0.0f || params.dynatemp_range > 0.0f || params.typical_p < 1.0f ||
          params.xtc_probability > 0.0f || job.kept == KeptLogits::kProcessed);
}

// Sums over all threads of all blocks; every thread gets them.
__device__ inline Sums OverCluster(const Sums& mine, Cluster cluster) {
  SampleShared& shared = Shared();
  const Sums of_block = OverBlock(mine, shared.warp_sums);
  if (threadIdx.x < cluster.size()) {
    *cluster.At(&shared.block_sums[cluster.rank()], threadIdx.x) = of_block;
  }
  cluster.Sync();
  const Sums all = OverTable(shared.block_sums, cluster.size());
  cluster.Sync();  // before a block writes again
  return all;
}

// Calls fn(value) for each value of this thread above -infinity.
template <typename Fn>
__device__ __forceinline__ void EachPossible(Fn fn) {
  EachFour([&](int i) {
    const float4 four = FourAt(i);
    EachOf(four, [&](float value, int) {
      if (value > -kInfinity) fn(value);
    });
  });
}

// Drops the values for which keep(value) is false.
template <typename Keep>
__device__ __forceinline__ void KeepOnly(Keep keep) {
  EachFour([&](int i) {
    const float4 four = FourAt(i);
    FourAt(i) = {keep(four.x) ? four.x : -kInfinity, keep(four.y) ? four.y : -kInfinity,
                 keep(four.z) ? four.z : -kInfinity, keep(four.w) ? four.w : -kInfinity};
  });
}

// The smallest key up to which the possible values weigh `wanted`, or kLastKey if all of them weigh
// less. key_of(value) is below 2^31. Nine bits of the key are found in a turn.
template <typename KeyOfValue, typename Weight>
__device__ uint32_t FindEdge(uint64_t wanted, KeyOfValue key_of, Weight weight_of,
                             Cluster cluster) {
  SampleShared& shared = Shared();
  constexpr int kTurnBits = 9;
  constexpr uint32_t kWeights = 1u << kTurnBits;
  static_assert(sizeof(shared.weights) == kWeights * sizeof(uint64_t));
  static_assert(kWeights <= 2 * kSampleThreads);
  uint32_t edge = 0;
  uint64_t before = 0;  // weight of the keys below the edge
  for (int below = 31; below > 0;) {
    const int bits = min(below, kTurnBits);
    const int above = below;
    below -= bits;
    for (uint32_t b = threadIdx.x; b < kWeights; b += kSampleThreads) shared.weights[b] = 0;
    __syncthreads();
    EachPossible([&](float value) {
      const uint32_t key = key_of(value);
      if ((key ^ edge) >> above != 0) return;
      atomicAdd(
          reinterpret_cast<unsigned long long*>(&shared.weights[key >> below & ((1u << bits) - 1)]),
          static_cast<unsigned long long>(weight_of(value)));
    });
    cluster.Sync();
    const uint32_t bin = threadIdx.x * 2;
    uint64_t weight[2] = {0, 0};
    for (uint32_t rank = 0; bin < kWeights && rank < cluster.size(); ++rank) {
      weight[0] += *cluster.At(&shared.weights[bin], rank);
      weight[1] += *cluster.At(&shared.weights[bin + 1], rank);
    }
    uint64_t total;
    const uint64_t through = before + SumBefore<kSampleThreads>(weight[0] + weight[1], &total);
    if (through < wanted && through + weight[0] + weight[1] >= wanted) {
      const bool second = through + weight[0] < wanted;
      shared.edge_bin = bin + (second ? 1 : 0);
      shared.edge_before = through + (second ? weight[0] : 0);
    }
    cluster.Sync();  // and before a block clears its weights
    if (before + total < wanted) return kLastKey;
    edge |= shared.edge_bin << below;
    before = shared.edge_before;
  }
  return edge;
}

// Over z above -infinity: their number, mass and moment (kernels/sampling_math.h), where a value is
// z + shift.
__device__ inline MassSums SumMasses(float shift, Cluster cluster) {
  Sums mine = {};
  EachPossible([&](float value) {
    const float z = value - shift;
    ++mine.count;
    mine.first += MassOf(z);
    mine.second += MomentOf(z, WeightOf(z) * 0x1p-40f);
  });
  const Sums sums = OverCluster(mine, cluster);
  return {sums.count, sums.first, sums.second};
}

// top_n_sigma, of logits.
__device__ inline void DropFar(float top, float top_n_sigma, Cluster cluster) {
  Sums mine = {};
  EachPossible([&](float logit) {
    const uint64_t distance = DistanceOf(top, logit);
    ++mine.count;
    mine.first += distance;
    mine.second += distance * distance;
  });
  const Sums sums = OverCluster(mine, cluster);
  const float farthest = FarthestKept(top_n_sigma, {sums.count, sums.first, sums.second});
  KeepOnly([&](float logit) { return !(top - logit > farthest); });
}

// The filters of z that are off in most rows.
__device__ inline void KeepTypical(float typical_p, Cluster cluster) {
  const MassSums sums = SumMasses(0.0f, cluster);
  const float mean = MeanDistance(sums);
  const uint32_t edge = FindEdge(
      MassOfShare(typical_p, sums.mass), [&](float z) { return __float_as_uint(fabsf(z + mean)); },
      [](float z) { return MassOf(z); }, cluster);
  KeepOnly([&](float z) { return __float_as_uint(fabsf(z + mean)) <= edge; });
}
__device__ inline void DropTopChoices(float threshold, Cluster cluster) {
  const double wanted =
      static_cast<double>(threshold) * static_cast<double>(SumMasses(0.0f, cluster).mass);
  Sums mine = {};
  EachPossible([&](float z) {
    if (static_cast<double>(MassOf(z)) >= wanted) mine.most = Larger(mine.most, KeyOf(z));
  });
  const auto least = static_cast<uint32_t>(OverCluster(mine, cluster).most);
  KeepOnly([&](float z) { return KeyOf(z) >= least; });
}

// From logits to z of the tokens to draw from, in sampling.h's order. All threads of all blocks
// call it; at the return the block's values are complete.
__device__ __noinline__ inline void Narrow(Cluster cluster) {
  SampleShared& shared = Shared();
  const SampleRow& params = shared.job.params;
  const float top = ScoreOf(shared.extremes.best);
  if (params.top_n_sigma > 0.0f) DropFar(top, params.top_n_sigma, cluster);
  float temperature = params.temperature;
  if (params.dynatemp_range > 0.0f) {
    temperature = DynamicTemperature(temperature, params.dynatemp_range, params.dynatemp_exponent,
                                     SumMasses(top, cluster));
  }
  const Divisor divisor(temperature);
  EachFour([&](int i) { FourAt(i) = divisor.Divide(FourAt(i) - top); });
  const auto key_of = [](float z) { return KeyOf(z); };
  const auto mass_of = [](float z) { return MassOf(z); };
  if (ByRank(params, shared.slice.vocab)) {
    const uint32_t edge = FindEdge(
        params.top_k, key_of, [](float) { return uint64_t{1}; }, cluster);
    KeepOnly([&](float z) { return KeyOf(z) <= edge; });
  }
  if (params.top_p < 1.0f) {
    const uint64_t wanted = MassOfShare(params.top_p, SumMasses(0.0f, cluster).mass);
    const uint32_t edge = FindEdge(wanted, key_of, mass_of, cluster);
    KeepOnly([&](float z) { return KeyOf(z) <= edge; });
  }
  if (params.min_p > 0.0f) KeepOnly([&](float z) { return !(ExactExp(z) < params.min_p); });
  if (params.typical_p < 1.0f) KeepTypical(params.typical_p, cluster);
  const auto position = static_cast<uint32_t>(shared.job.num_known);
  if (CoinFalls(params.seed, position, params.xtc_probability)) {
    DropTopChoices(params.xtc_threshold, cluster);
  }
  __syncthreads();
}

}  // namespace quire::cuda
