// Plans a step's attention on the device, in one CTA: sorts the sequences by kernel, sums their
// costs, and cuts the sum into one range for each CTA of the decode kernel (attention_plan.h).
// Reads 12 bytes a sequence; the time is that of a few barriers, about 5 us once a step.
#include <algorithm>

#include "kernels/check.h"
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/device/device_math.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 1024;

struct PlanArgs {
  const int32_t* query_begin;
  const int32_t* context_len;
  const int32_t* table_row;
  int32_t num_seqs;
  int32_t group;
  int32_t num_kv_heads;
  int32_t window;
  int32_t num_sms;
  int32_t num_ctas;  // of the decode kernel
  int32_t max_rows;
  AttentionSpace space;
};

// What is summed over the sequences.
struct Sums {
  int32_t sequences, units, cost, tiles;
};

__device__ Sums operator+(const Sums& a, const Sums& b) {
  return {a.sequences + b.sequences, a.units + b.units, a.cost + b.cost, a.tiles + b.tiles};
}

__device__ Sums operator-(const Sums& a, const Sums& b) {
  return {a.sequences - b.sequences, a.units - b.units, a.cost - b.cost, a.tiles - b.tiles};
}

__device__ Sums ShuffleFrom(const Sums& a, int lane) {
  return {__shfl_sync(0xffffffffu, a.sequences, lane), __shfl_sync(0xffffffffu, a.units, lane),
          __shfl_sync(0xffffffffu, a.cost, lane), __shfl_sync(0xffffffffu, a.tiles, lane)};
}
__device__ Sums ShuffleUp(const Sums& a, int distance) {
  return {__shfl_up_sync(0xffffffffu, a.sequences, distance),
          __shfl_up_sync(0xffffffffu, a.units, distance),
          __shfl_up_sync(0xffffffffu, a.cost, distance),
          __shfl_up_sync(0xffffffffu, a.tiles, distance)};
}

// The sum over the threads before this one; `total` is the sum over all.
__device__ Sums SumBefore(const Sums& mine, Sums* total) {
  static_assert(kThreads == 32 * 32);
  __shared__ Sums of_warp[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Sums sum = mine;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const Sums other = ShuffleUp(sum, distance);
    if (lane >= distance) sum = sum + other;
  }
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  Sums warps = of_warp[lane];  // up to and with warp `lane`, after this
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const Sums other = ShuffleUp(warps, distance);
    if (lane >= distance) warps = warps + other;
  }
  __syncthreads();
  *total = ShuffleFrom(warps, 31);
  const Sums before = ShuffleFrom(warps, warp == 0 ? 0 : warp - 1);
  return (warp == 0 ? Sums{} : before) + (sum - mine);
}

// Running sums in shared memory, [max_rows + 1] each.
struct SharedSums {
  int32_t* cost_begin;
  int32_t* unit_begin;
  int32_t* tile_begin;  // by sequence of the step, not of the decoding ones
};

// Lists the decoding sequences and returns the sums over all.
__device__ Sums SumSequences(const PlanArgs& a, const SharedSums& shared) {
  Sums done{};
  for (int base = 0; base < a.num_seqs; base += kThreads) {
    const int s = base + static_cast<int>(threadIdx.x);
    DecodeSequence sequence{};
    Sums mine{};
    bool decodes = false;
    if (s < a.num_seqs) {
      sequence.query_begin = a.query_begin[s];
      sequence.num_queries = a.query_begin[s + 1] - sequence.query_begin;
      sequence.context = a.context_len[s];
      sequence.table_row = a.table_row[s];
      decodes = Decodes(sequence.num_queries, a.group);
      if (decodes) {
        sequence = PlanDecode(sequence, a.group, a.num_kv_heads, a.window);
        mine = {1, a.num_kv_heads * sequence.num_chunks, a.num_kv_heads * CostOfHead(sequence), 0};
      } else {
        mine.tiles = CeilDiv(sequence.num_queries * a.group, kPrefillRows);
      }
    }
    Sums total;
    const Sums before = done + SumBefore(mine, &total);
    if (s < a.num_seqs) shared.tile_begin[s] = before.tiles;
    if (decodes) {
      a.space.sequences[before.sequences] = sequence;
      shared.unit_begin[before.sequences] = before.units;
      shared.cost_begin[before.sequences] = before.cost;
    }
    done = done + total;
  }
  if (threadIdx.x == 0) {
    shared.unit_begin[done.sequences] = done.units;
    shared.cost_begin[done.sequences] = done.cost;
  }
  __syncthreads();
  return done;
}

__device__ void PlanRanges(const PlanArgs& a, const DecodeSums& sums) {
  __shared__ int32_t begins[kMaxRanges + 1], filled[kMaxRanges];
  const int r = static_cast<int>(threadIdx.x);
  const DecodeRange range = sums.Begin(r);
  const DecodeRange next = sums.Begin(r + 1);
  const int32_t begin = sums.UnitOf(range);
  begins[r] = begin;
  if (r == kMaxRanges - 1) begins[kMaxRanges] = sums.UnitOf(next);
  const bool has_units = sums.UnitOf(next) > begin;
  Sums total;
  const Sums before = SumBefore({has_units ? 1 : 0, 0, 0, 0}, &total);
  filled[r] = before.sequences + (has_units ? 1 : 0);
  __syncthreads();
  if (r >= a.num_ctas) return;
  a.space.ranges[r] = FillRange(sums, {begins, filled, sums.num_ranges}, r, range, next);
}

// The tiles of a sequence from its end on: the longest are taken first, so that short ones fill up
// the last round.
__device__ void ListPrefillTiles(const PlanArgs& a, const int32_t* tile_begin, int32_t num_tiles) {
  for (int t = static_cast<int>(threadIdx.x); t < num_tiles; t += kThreads) {
    const int32_t s = LastAtMost(tile_begin, a.num_seqs, t);
    PrefillTile tile;
    tile.query_begin = a.query_begin[s];
    tile.num_queries = a.query_begin[s + 1] - tile.query_begin;
    tile.context = a.context_len[s];
    tile.table_row = a.table_row[s];
    const int32_t tiles = CeilDiv(tile.num_queries * a.group, kPrefillRows);
    tile.first_row = (tiles - 1 - (t - tile_begin[s])) * kPrefillRows;
    a.space.tiles[t] = tile;
  }
}

__global__ __launch_bounds__(kThreads) void PlanKernel(const PlanArgs a) {
  extern __shared__ int32_t shared[];
  PdlWait();
  PdlTrigger();
  const SharedSums arrays{shared, shared + a.max_rows + 1, shared + 2 * (a.max_rows + 1)};
  const Sums all = SumSequences(a, arrays);
  DecodeSums sums{a.space.sequences, arrays.cost_begin, arrays.unit_begin, all.sequences, 0};
  // One CTA a multiprocessor where that is enough: neighbours in the grid may share one.
  sums.num_ranges = all.units <= a.num_sms ? a.num_sms : a.num_ctas;
  PlanRanges(a, sums);
  ListPrefillTiles(a, arrays.tile_begin, all.tiles);
  if (threadIdx.x == 0) *a.space.num_tiles = all.tiles;
}

struct SpaceLayout {
  int64_t sequences, ranges, arrivals, tiles, counts, states, end;  // offsets in bytes
  int64_t state_stride;
};

int64_t MaxPrefillTiles(int64_t tokens, int64_t rows, int64_t group) {
  return tokens * group / kPrefillRows + rows;
}

SpaceLayout LayOut(const AttentionLimits& limits, int num_sms) {
  const int64_t ctas = kDecodeCtasPerSm * num_sms;
  const int64_t group = limits.num_heads / limits.num_kv_heads;
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    const int64_t offset = at;
    at = (at + bytes + 255) / 256 * 256;
    return offset;
  };
  SpaceLayout layout;
  layout.sequences = take(limits.max_rows * static_cast<int64_t>(sizeof(DecodeSequence)));
  layout.ranges = take(ctas * static_cast<int64_t>(sizeof(DecodeRange)));
  layout.arrivals = take(ctas * 4);
  layout.tiles = take(MaxPrefillTiles(limits.max_tokens, limits.max_rows, group) *
                      static_cast<int64_t>(sizeof(PrefillTile)));
  layout.counts = take(8);
  // A range begins in at most one shared head, of which it may hold all chunks but the first, and
  // ends in at most one that it owns. Rows are 8, or 16 in chunks of twice the size.
  const int64_t chunks = std::min<int64_t>(kMaxChunks, (limits.max_context + 63) / 64 + 1);
  layout.state_stride = (chunks + 2) * 8 * StateRowFloats(limits.head_dim);
  layout.states = take(ctas * layout.state_stride * 4);
  layout.end = at;
  return layout;
}

AttentionSpace SpaceAt(const AttentionLimits& limits, int num_sms, void* space) {
  const SpaceLayout layout = LayOut(limits, num_sms);
  char* base = static_cast<char*>(space);
  AttentionSpace s;
  s.sequences = reinterpret_cast<DecodeSequence*>(base + layout.sequences);
  s.ranges = reinterpret_cast<DecodeRange*>(base + layout.ranges);
  s.arrivals = reinterpret_cast<uint32_t*>(base + layout.arrivals);
  s.tiles = reinterpret_cast<PrefillTile*>(base + layout.tiles);
  s.num_tiles = reinterpret_cast<int32_t*>(base + layout.counts);
  s.tickets = reinterpret_cast<uint32_t*>(base + layout.counts + 4);
  s.states = reinterpret_cast<float*>(base + layout.states);
  s.state_stride = layout.state_stride;
  return s;
}

void CheckShapes(const PagedAttentionParams& p, const AttentionLimits& limits) {
  const KvLayerView& kv = p.kv;
  const int64_t width = int64_t{p.num_heads} * kv.head_dim;
  CHECK_EQ(p.num_heads, limits.num_heads);
  CHECK_EQ(kv.num_kv_heads, limits.num_kv_heads);
  CHECK_EQ(kv.head_dim, limits.head_dim);
  CHECK_LE(p.num_seqs, limits.max_rows);
  CHECK_LE(p.q.dim[0], limits.max_tokens);
  CHECK(p.q.dtype == kv.dtype && p.out.dtype == kv.dtype);
  CHECK(p.q.dim[1] == width && p.out.dim[1] == width && p.out.dim[0] == p.q.dim[0]);
  CHECK(kv.block_size == 16 || kv.block_size == 32 || kv.block_size == 64);
  // What 16-byte copies need.
  CHECK_EQ(p.q.row_stride % 8, 0);
  CHECK_EQ(p.out.row_stride % 8, 0);
  CHECK_EQ((kv.block_stride | kv.kv_stride | kv.head_stride) % 8, 0);
  CHECK_EQ((reinterpret_cast<uintptr_t>(p.q.data) | reinterpret_cast<uintptr_t>(p.out.data) |
            reinterpret_cast<uintptr_t>(kv.base)) %
               16,
           0u);
  CHECK(p.scale > 0.0f && p.max_query_len > 0);
}

AttentionArgs MakeArgs(const PagedAttentionParams& p, const AttentionSpace& space) {
  const KvLayerView& kv = p.kv;
  constexpr float kLog2E = 1.4426950408889634f;
  const int32_t group = p.num_heads / kv.num_kv_heads;
  return {.q = p.q.data,
          .q_stride = p.q.row_stride,
          .out = p.out.data,
          .out_stride = p.out.row_stride,
          .kv = kv.base,
          .block_stride = kv.block_stride,
          .kv_stride = kv.kv_stride,
          .head_stride = kv.head_stride,
          .block_shift = kv.block_size == 16   ? 4
                         : kv.block_size == 32 ? 5
                                               : 6,
          .num_kv_heads = kv.num_kv_heads,
          .group = group,
          .group_inverse = ((uint32_t{1} << 31) + group - 1) / group,
          .window = p.window,
          .scale_log2 = p.scale * kLog2E,
          .block_table = p.block_table,
          .table_stride = p.table_stride,
          .space = space};
}

}  // namespace

int64_t PagedAttention::SpaceBytes(const AttentionLimits& limits, int num_sms) {
  return LayOut(limits, num_sms).end;
}

PagedAttention::PagedAttention(const AttentionLimits& limits, const Device& device, void* space,
                               PrefillProducts products)
    : limits_(limits), device_(device), space_(space), products_(products) {
  CHECK(limits.head_dim == 64 || limits.head_dim == 128);
  CHECK_EQ(limits.num_heads % limits.num_kv_heads, 0);
  CHECK_LE(limits.num_heads / limits.num_kv_heads, kDecodeRows);
  CHECK_LE(kDecodeCtasPerSm * device.num_sms, kMaxRanges);
  CHECK_LE(limits.max_rows, 3200);  // three sums a row in the plan's 48 KiB of shared memory
}

void PagedAttention::Plan(const PagedAttentionParams& p) {
  CheckShapes(p, limits_);
  planned_window_ = p.window;
  ran_ = false;
  const PlanArgs args{
      .query_begin = p.query_begin,
      .context_len = p.context_len,
      .table_row = p.table_row,
      .num_seqs = p.num_seqs,
      .group = p.num_heads / p.kv.num_kv_heads,
      .num_kv_heads = p.kv.num_kv_heads,
      .window = p.window,
      .num_sms = device_.num_sms,
      .num_ctas = kDecodeCtasPerSm * device_.num_sms,
      .max_rows = limits_.max_rows,
      .space = SpaceAt(limits_, device_.num_sms, space_),
  };
  const size_t bytes = 3 * sizeof(int32_t) * static_cast<size_t>(limits_.max_rows + 1);
  Launch(device_, {.threads = kThreads, .shared_bytes = bytes}, PlanKernel, args);
}

void PagedAttention::Run(const PagedAttentionParams& p) {
  CheckShapes(p, limits_);
  CHECK_EQ(p.window, planned_window_);  // chunks begin where the window does
  AttentionArgs args = MakeArgs(p, SpaceAt(limits_, device_.num_sms, space_));
  args.settled = ran_;
  ran_ = true;
  const bool all_decode = Decodes(p.max_query_len, args.group);
  const bool all_prefill = p.num_seqs == 1 && !all_decode;
  if (!all_prefill) LaunchDecode(p, args, device_);
  if (all_decode) return;
  const int64_t max_tiles = MaxPrefillTiles(p.q.dim[0], p.num_seqs, args.group);
  if (products_ == PrefillProducts::kWarp) {
    LaunchPlainPrefill(p, args, max_tiles, device_);
  } else {
    LaunchPrefill(p, args, max_tiles, device_);
  }
}

}  // namespace quire::cuda
