// Plans a step's attention on the device, in one block: sorts the sequences by kernel, sums their
// costs, cuts the sum into one range for each block of the decode kernel (attention_plan.h), and
// lists the tiles of the prefill kernel (prefill_plan.h).
// Reads 12 bytes a sequence; the time is that of a few barriers, about 5 us once a step.
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/device/block_scan.cuh"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/device_limits.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 1024;

// The sums over sequences.
struct Sums {
  int64_t cost;
  int32_t sequences, units, tiles, state_rows;
};

__device__ Sums operator+(const Sums& a, const Sums& b) {
  return {a.cost + b.cost, a.sequences + b.sequences, a.units + b.units, a.tiles + b.tiles,
          a.state_rows + b.state_rows};
}

// Running sums in shared memory, [max_rows + 1] each.
struct SharedSums {
  int64_t* cost_begin;
  int32_t* unit_begin;
  int32_t* tile_begin;  // counts all sequences of the step, not the decoding ones
  int32_t* states;      // of the same sequences: the first row of their states, or kOwnStates
};

// Four numbers for each row.
constexpr uint32_t SumBytes(int32_t max_rows) {
  return (sizeof(int64_t) + 3 * sizeof(int32_t)) * static_cast<uint32_t>(max_rows + 1);
}
// Beside them a block has the ranges' beginnings and how many of each are filled, and the partial
// sums of its warps.
static_assert(SumBytes(kCudaLimits.max_rows) + 4 * (2 * kMaxRanges + 1) + 32 * sizeof(Sums) <=
              227 << 10);

__device__ PrefillSequence PrefillAt(const PlanArgs& a, int s) {
  PrefillSequence sequence;
  sequence.query_begin = a.query_begin[s];
  sequence.num_queries = a.query_begin[s + 1] - sequence.query_begin;
  sequence.context = a.context_len[s];
  sequence.table_row = a.table_row[s];
  return PlanPrefill(sequence, a.group, a.num_kv_heads, a.window);
}

// Lists the decoding sequences and returns the sums over all sequences.
__device__ Sums SumSequences(const PlanArgs& a, const SharedSums& shared) {
  Sums done{};
  for (int base = 0; base < a.num_seqs; base += kThreads) {
    const int s = base + static_cast<int>(threadIdx.x);
    DecodeSequence sequence{};
    PrefillSequence prefill;
    Sums mine{};
    bool decodes = false;
    if (s < a.num_seqs) {
      sequence.query_begin = a.query_begin[s];
      sequence.num_queries = a.query_begin[s + 1] - sequence.query_begin;
      sequence.context = a.context_len[s];
      sequence.table_row = a.table_row[s];
      decodes = Decodes(sequence.num_queries, a.group);
      if (decodes) {
        sequence = PlanDecode(sequence, a.group, a.num_kv_heads, a.window, a.bytes);
        mine = {.cost = int64_t{a.num_kv_heads} * CostOfHead(sequence),
                .sequences = 1,
                .units = a.num_kv_heads * sequence.num_chunks};
      } else {
        prefill = PrefillAt(a, s);
        mine.state_rows = prefill.AllStateRows(a.num_kv_heads);
        mine.tiles = prefill.tiles * prefill.spans;
      }
    }
    Sums total;
    Sums before = done + SumBefore<kThreads>(mine, &total);
    if (decodes) {
      a.space.sequences[before.sequences] = sequence;
      shared.unit_begin[before.sequences] = before.units;
      shared.cost_begin[before.sequences] = before.cost;
    }
    // Tiles take all their spans where the states find no more room.
    const bool apart = before.state_rows + mine.state_rows <= a.space.span_state_rows;
    if (done.state_rows + total.state_rows > a.space.span_state_rows) {
      const int32_t tiles = apart ? mine.tiles : prefill.tiles;
      before.tiles = done.tiles + SumBefore<kThreads>(tiles, &total.tiles);
    }
    if (s < a.num_seqs) {
      shared.tile_begin[s] = before.tiles;
      shared.states[s] = apart ? before.state_rows : kOwnStates;
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
  const Sums before = SumBefore<kThreads>(Sums{.sequences = has_units ? 1 : 0}, &total);
  filled[r] = before.sequences + (has_units ? 1 : 0);
  __syncthreads();
  if (r >= a.num_ctas) return;
  a.space.ranges[r] = FillRange(sums, {begins, filled, sums.num_ranges}, r, range, next);
}

__device__ void ListPrefillTiles(const PlanArgs& a, const SharedSums& shared, int32_t num_tiles) {
  for (int t = static_cast<int>(threadIdx.x); t < num_tiles; t += kThreads) {
    const int32_t s = LastAtMost(shared.tile_begin, a.num_seqs, t);
    const PrefillSequence sequence = PrefillAt(a, s);
    const int32_t states = sequence.spans > 1 ? shared.states[s] : 0;
    a.space.tiles[t] = TileAt(sequence, t - shared.tile_begin[s], states, a.num_kv_heads);
  }
}

__global__ __launch_bounds__(kThreads) void PlanKernel(const PlanArgs a) {
  extern __shared__ int64_t shared[];
  PdlWait();
  PdlTrigger();
  auto* const counts = reinterpret_cast<int32_t*>(shared + a.max_rows + 1);
  const SharedSums arrays{shared, counts, counts + a.max_rows + 1, counts + 2 * (a.max_rows + 1)};
  const Sums all = SumSequences(a, arrays);
  DecodeSums sums{a.space.sequences, arrays.cost_begin, arrays.unit_begin, all.sequences, 0};
  // Few units get one CTA a multiprocessor: neighbours in the grid may share a multiprocessor.
  sums.num_ranges = all.units <= a.num_sms ? a.num_sms : a.num_ctas;
  PlanRanges(a, sums);
  ListPrefillTiles(a, arrays, all.tiles);
  if (threadIdx.x == 0) {
    a.space.num_tiles[0] = all.tiles;
    a.space.num_tiles[1] = all.state_rows > 0;
  }
}

}  // namespace

void LaunchPlan(const PlanArgs& args, const Device& device) {
  AllowShared<PlanKernel, SumBytes(kCudaLimits.max_rows)>();
  Launch(device, {.threads = kThreads, .shared_bytes = SumBytes(args.max_rows)}, PlanKernel, args);
}

}  // namespace quire::cuda
