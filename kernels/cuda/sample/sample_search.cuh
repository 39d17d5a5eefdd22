// The search for the edge of a draw: the key of the last token that top_k or top_p keeps. Blocks
// count tokens in bins of keys, and the bins narrow around the edge until it is one key, or until
// so few tokens are left that they are compared one by one. Counts and masses are integers, so the
// edge is exact in any order of addition.
#pragma once

#include "kernels/ceil_div.h"
#include "kernels/cuda/device/block_scan.cuh"
#include "kernels/cuda/sample/sample_math.cuh"

namespace quire::cuda {

// Three blocks of this size with slices of 64 KB fill a multiprocessor.
inline constexpr int kSampleThreads = 384;
inline constexpr int kSampleWarps = kSampleThreads / 32;
inline constexpr int kBins = 1024;
inline constexpr int kFew = 256;  // tokens that are compared one by one

// The linear bin, 32 to the unit, of z <= 0 above -32. Rounded to zero, 2^23 + x has the whole part
// of x in its low bits.
__device__ __forceinline__ uint32_t LinearBinOf(float z) {
  return __float_as_uint(__fmaf_rz(z, -32.0f, 0x1p23f)) - __float_as_uint(0x1p23f);
}
__device__ __forceinline__ uint32_t FirstKeyOfLinear(uint32_t bin) {
  return __float_as_uint(static_cast<float>(bin) / 32.0f);
}
// The last linear bin is left for tokens past all searched bins.
inline constexpr uint32_t kLastLinear = kBins - 2;

// Bins over the keys [first, last]: linear in z, or runs of 2^shift keys.
struct Bins {
  uint32_t first, last;
  uint32_t shift;
  bool linear;

  __device__ uint32_t Of(uint32_t key) const {
    return linear ? LinearBinOf(-__uint_as_float(key)) : (key - first) >> shift;
  }
  __device__ uint32_t FirstKey(uint32_t bin) const {
    return linear ? FirstKeyOfLinear(bin) : first + (bin << shift);
  }
  __device__ uint32_t LastKey(uint32_t bin) const {
    if (bin + 1 == kBins) return last;
    return min(FirstKey(bin + 1) - 1, last);
  }
};

// The linear bins up to `bin`, but no further than key `last`.
__device__ __forceinline__ Bins LinearBins(uint32_t bin, uint32_t last = kLastKey - 1) {
  return {0, min(FirstKeyOfLinear(bin + 1) - 1, last), 0, true};
}

// The narrowest runs that cover [first, last].
__device__ __forceinline__ Bins BinsOver(uint32_t first, uint32_t last) {
  const int bits = 32 - __clz(static_cast<int>(last - first));
  constexpr int kBinBits = 10;
  static_assert(kBins == 1 << kBinBits);
  return {first, last, static_cast<uint32_t>(max(bits - kBinBits, 0)), false};
}

// The next action of all blocks of a row.
enum class Next : int32_t { kCount, kGather, kDraw };
struct alignas(8) Orders {
  Next next;
  uint32_t num_kept;              // kGather: the number of tokens up to last_key
  uint32_t last_key;              // kGather, kDraw: tokens past it are dropped
  Bins bins;                      // kCount: counts the tokens of these keys,
  uint32_t mass_begin, mass_end;  // and sums the mass of tokens with keys in [begin, end)
};

// The state of a search between counts, in the first block.
struct Search {
  bool by_mass;        // for top_p; otherwise by rank, for top_k
  uint32_t rank;       // the edge is the rank-th token from the first bin on
  uint32_t num_above;  // tokens before the bins
  uint64_t wanted;     // the edge is the first key with this much mass before it or at it
  uint64_t above;      // mass before the bins
  // Where the search continues if the bins turn out to begin past the edge.
  uint32_t before_first, before_num_above;
  uint64_t before_above;
};

// BinSum: the number of tokens of a bin, and bounds of their mass.
struct BinSum {
  uint32_t count;
  uint64_t low, high;
};

// Bounds of the mass of `count` tokens of a bin; equal where the bin is one key. The margins cover
// that ExactExp is monotonic only up to a rounding. Below z = -28 all masses are 0.
__device__ __forceinline__ BinSum BoundsOf(const Bins& bins, uint32_t bin, uint32_t count) {
  if (count == 0) return {0, 0, 0};
  const uint32_t first = bins.FirstKey(bin), last = bins.LastKey(bin);
  uint64_t high = MassOf(FromKey(first));
  if (first == last) return {count, count * high, count * high};
  if (FromKey(first) < -28.0f) return {count, 0, 0};
  uint64_t low = MassOf(FromKey(last));
  high += (high >> 20) + 1;
  low -= min(low, (low >> 20) + 1);
  return {count, count * low, count * high};
}

__device__ __forceinline__ BinSum operator+(const BinSum& a, const BinSum& b) {
  return {a.count + b.count, a.low + b.low, a.high + b.high};
}

// The bins in which a search reaches its goal, and the number of tokens before and through them.
struct Crossing {
  uint32_t first, last;
  uint32_t before_first, through_first, through_last;
};

// Finds where `counts` [kBins] reach the goal, and leaves them zero. By rank the goal is a count;
// by mass it is `wanted`, known by bounds: the edge then lies between the bin where the upper bound
// reaches the goal and the bin where the lower bound does, or the last bin. All threads call it;
// `found` is in shared memory and may be read after a barrier. A barrier must lie between two
// calls.
__device__ inline void FindCrossing(uint32_t* counts, const Bins& bins, const Search& search,
                                    Crossing* found) {
  constexpr int kEach = CeilDiv(kBins, kSampleThreads);
  BinSum bin[kEach], sum = {0, 0, 0};
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const uint32_t b = threadIdx.x * kEach + i;
    const uint32_t count = b < kBins ? counts[b] : 0;
    if (b < kBins) counts[b] = 0;
    bin[i] = search.by_mass ? BoundsOf(bins, b, count) : BinSum{count, 0, 0};
    sum = sum + bin[i];
  }
  BinSum total, before = SumBefore<kSampleThreads>(sum, &total);
  // True if the sum through a bin reaches the goal, by the upper and by the lower bound.
  const auto may = [&](const BinSum& s) {
    return search.by_mass ? search.above + s.high >= search.wanted : s.count >= search.rank;
  };
  const auto must = [&](const BinSum& s) {
    return search.by_mass ? search.above + s.low >= search.wanted : s.count >= search.rank;
  };
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const uint32_t b = threadIdx.x * kEach + i;
    const BinSum through = before + bin[i];
    if (may(through) && !may(before)) {
      found->first = b;
      found->before_first = before.count;
      found->through_first = through.count;
    }
    if (must(through) ? !must(before) : b == kBins - 1) {
      found->last = b;
      found->through_last = through.count;
    }
    before = through;
  }
}

__device__ inline Orders GatherThrough(uint32_t last_key, uint32_t num_kept) {
  return {Next::kGather, num_kept, last_key, {}, 0, 0};
}
__device__ inline Orders CountOver(const Bins& bins, uint32_t mass_begin, uint32_t mass_end) {
  return {Next::kCount, 0, 0, bins, mass_begin, mass_end};
}
__device__ inline Orders DrawThrough(uint32_t last_key) {
  return {Next::kDraw, 0, last_key, {}, 0, 0};
}

// The next orders after a count for top_k.
__device__ inline Orders AfterRank(const Orders& done, const Crossing& found, float top_p,
                                   Search& search) {
  uint32_t first = kLastKey, last = kLastKey, before = found.through_last;
  if (found.through_last >= search.rank) {
    first = done.bins.FirstKey(found.first);
    last = done.bins.LastKey(found.first);
    before = found.before_first;
    const uint32_t kept = search.num_above + found.through_first;
    if (kept <= kFew) return GatherThrough(last, kept);
  } else if (done.bins.linear) {
    first = done.bins.last + 1;
    last = kLastKey - 1;
  }  // otherwise fewer tokens than top_k are above -infinity, and all are kept
  if (first != last) {
    search.rank -= before;
    search.num_above += before;
    return CountOver(BinsOver(first, last), 0, 0);
  }
  if (top_p >= 1.0f) return DrawThrough(last);
  search = {.by_mass = true};
  return CountOver(LinearBins(kLastLinear, last), 0, last + 1);
}

// The next orders after a count for top_p; search.above is the mass before its first bin.
__device__ inline Orders AfterMass(const Orders& done, const Crossing& found, Search& search) {
  const Bins& bins = done.bins;
  const uint32_t first = bins.FirstKey(found.first), last = bins.LastKey(found.last);
  const uint32_t kept = search.num_above + found.through_last;
  if (kept <= kFew) return GatherThrough(last, kept);
  if (first == last) return DrawThrough(last);
  search.before_first = bins.first;
  search.before_num_above = search.num_above;
  search.before_above = search.above;
  if (bins.linear || last - first <= (bins.last - bins.first) / 2) {
    search.num_above += found.before_first;
    return CountOver(BinsOver(first, last), bins.first, first);
  }
  // The bounds are too loose to halve the keys: first find whether the edge is in the first bin.
  search.num_above += found.through_first;
  const uint32_t begin = bins.LastKey(found.first) + 1;
  return CountOver(BinsOver(begin, last), bins.first, begin);
}

// Adds the mass of a count. False if the edge turns out to lie before the count's bins; `back` then
// orders a count of the keys before them.
__device__ inline bool TakeMass(const Orders& done, uint64_t mass, float top_p, Search& search,
                                Orders* back) {
  if (done.bins.linear) {
    search.wanted = MassOfShare(top_p, mass);
    return true;
  }
  search.above += mass;
  if (search.above < search.wanted) return true;
  search.above = search.before_above;
  search.num_above = search.before_num_above;
  *back = CountOver(BinsOver(search.before_first, done.bins.first - 1), 0, 0);
  return false;
}

}  // namespace quire::cuda
