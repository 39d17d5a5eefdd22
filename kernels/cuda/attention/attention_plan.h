// How attention divides the work of a step's decoding sequences (prefill_plan.h has the others):
// plain arithmetic for the device and for tests on the host.
//
// Decoding sequences are those whose queries times G (query heads a key/value head) are at most 16
// rows, the columns of two matrix instructions. Their contexts are cut into chunks; a unit is one
// chunk of one key/value head. Units are numbered by sequence, then head, then chunk, and every CTA
// of the decode kernel takes one contiguous range of them, of about equal cost.
//
// A head whose chunks fall into several ranges is shared; the range with its first chunk owns it.
// The owner folds its own chunks into one state, and the other ranges keep one state a chunk. The
// range that arrives last folds all these states in order. So the order of every sum depends on the
// sequence alone.
#pragma once

#include <cstdint>

#include "kernels/ceil_div.h"

namespace quire::cuda {

inline constexpr int32_t kDecodeRows = 16;  // of a sequence: queries * G
inline constexpr int32_t kDecodeTile = 64;  // tokens: a group of 16 for each warp of a decode CTA
inline constexpr int32_t kMaxChunks = 128;  // of a head
inline constexpr int32_t kMaxRanges = 1024;
// Cost of a unit in quarters of a tile's time: 4 a tile, 1 for the merge at its end, and 2 a head
// for its queries.
inline constexpr int32_t kTileCost = 4, kUnitCost = 1, kHeadCost = 2;

// A sequence of the decode kernel. Chunk c covers tokens [first + c * chunk, ...) up to the next
// chunk or the end of the context; first is a multiple of 16, so that no group of 16 tokens is
// in two blocks.
struct alignas(16) DecodeSequence {
  int32_t query_begin = 0;
  int32_t num_queries = 0;
  int32_t context = 0;
  int32_t start = 0;  // the first token that a query sees
  int32_t chunk = 0;
  int32_t num_chunks = 0;
  int32_t table_row = 0;
  int32_t reserved = 0;

  constexpr int32_t first() const { return start & ~15; }
};

// A CTA's range: num_units units from (sequence, head, chunk) on, where `sequence` counts the
// decoding sequences. A range that begins or ends within a head also has that head's owner and its
// number of ranges.
struct alignas(16) DecodeRange {
  int32_t sequence = 0;
  int32_t head = 0;
  int32_t chunk = 0;
  int32_t num_units = 0;
  int32_t begin_owner = 0;
  int32_t begin_sharers = 0;
  int32_t end_sharers = 0;  // the owner is this range or begin_owner
  int32_t reserved = 0;
  DecodeSequence first;  // a copy of `sequence`, so that one load brings both
};

constexpr bool Decodes(int32_t num_queries, int32_t group) {
  return num_queries > 0 && num_queries * group <= kDecodeRows;
}

// The bytes of a head's tokens, which decide how its chunks are cut.
struct HeadBytes {
  bool wide = false;       // heads above 128
  bool eight_bit = false;  // K and V
};

// Tokens that a decode CTA takes at once: two tiles of 8 bits.
constexpr int32_t TokensAtOnce(HeadBytes bytes) {
  return bytes.eight_bit ? 2 * kDecodeTile : kDecodeTile;
}

// Tokens of a chunk, a power of two from 64 on. More chunks occupy more multiprocessors; larger
// chunks are merged and folded less often. So the number of chunks grows with the square root of
// the tokens, to 16 at 32768 tokens and 8 heads, and fewer heads get smaller chunks. Chunks are
// twice as large where the partial states have twice the rows, and half as large for heads above
// 128, whose tokens have twice the bytes. No chunk is smaller than what a CTA takes at once. Any
// change here changes output bits.
constexpr int32_t ChunkTokens(int32_t visible, int32_t rows, int32_t num_kv_heads,
                              HeadBytes bytes = {}) {
  const int64_t tokens_of_8_heads = int64_t{visible} * num_kv_heads / 8;
  int32_t tokens = kDecodeTile;
  int64_t most = 2 * kDecodeTile;
  for (; most < tokens_of_8_heads; most *= 4) tokens *= 2;
  if (bytes.wide && tokens > kDecodeTile) tokens /= 2;
  if (tokens < TokensAtOnce(bytes)) tokens = TokensAtOnce(bytes);
  while (int64_t{tokens} * kMaxChunks < visible) tokens *= 2;
  return rows > 8 ? tokens * 2 : tokens;
}

constexpr DecodeSequence PlanDecode(DecodeSequence s, int32_t group, int32_t num_kv_heads,
                                    int32_t window, HeadBytes bytes = {}) {
  const int32_t seen = window > 0 ? window + s.num_queries - 1 : s.context;
  s.start = s.context > seen ? s.context - seen : 0;
  const int32_t visible = s.context - s.first();
  s.chunk = ChunkTokens(visible, s.num_queries * group, num_kv_heads, bytes);
  s.num_chunks = CeilDiv(visible, s.chunk);
  return s;
}

constexpr int32_t CostOfHead(const DecodeSequence& s) {
  return CeilDiv(s.context - s.first(), kDecodeTile) * kTileCost + s.num_chunks * kUnitCost +
         kHeadCost;
}

// The unit of the sequence that begins nearest to `cost`; may be one past the last. Prefers the
// beginning of a head within `tolerance`, because then no range shares that head.
constexpr int32_t UnitAt(const DecodeSequence& s, int32_t cost, int64_t tolerance) {
  const int32_t of_head = CostOfHead(s);
  const int32_t head = cost / of_head, rest = cost % of_head;
  if (rest <= tolerance) return head * s.num_chunks;
  if (of_head - rest <= tolerance) return (head + 1) * s.num_chunks;
  const int32_t full = s.chunk / kDecodeTile * kTileCost + kUnitCost;
  const int32_t chunk = (rest + full / 2) / full;
  return head * s.num_chunks + (chunk < s.num_chunks ? chunk : s.num_chunks);
}

// Index of the last of `count` ascending values that is <= value; values[0] <= value.
template <typename T>
constexpr int32_t LastAtMost(const T* values, int32_t count, T value) {
  int32_t low = 0, high = count;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    (values[middle] <= value ? low : high) = middle;
  }
  return low;
}

// Running sums over a step's decoding sequences, [num_sequences + 1] each.
struct DecodeSums {
  const DecodeSequence* sequences = nullptr;
  const int64_t* cost_begin = nullptr;
  const int32_t* unit_begin = nullptr;
  int32_t num_sequences = 0;
  int32_t num_ranges = 0;  // that have units; the other CTAs have none

  // Where range `r` begins; num_units and the rest are not set.
  constexpr DecodeRange Begin(int32_t r) const {
    if (r >= num_ranges || num_sequences == 0) return {.sequence = num_sequences};
    // Ranges need not be equal: memory bandwidth bounds them, and the last range running has all of
    // it.
    const int64_t each = cost_begin[num_sequences] / num_ranges;
    const int64_t rest = cost_begin[num_sequences] % num_ranges;
    const int64_t cost = each * r + rest * r / num_ranges, tolerance = each * 3 / 10;
    const int32_t s = LastAtMost(cost_begin, num_sequences, cost);
    const int32_t unit =
        UnitAt(sequences[s], static_cast<int32_t>(cost - cost_begin[s]), tolerance);
    if (unit == unit_begin[s + 1] - unit_begin[s]) return {.sequence = s + 1};
    const int32_t chunks = sequences[s].num_chunks;
    return {.sequence = s, .head = unit / chunks, .chunk = unit % chunks};
  }
  constexpr int32_t UnitOf(const DecodeRange& range) const {
    if (range.sequence == num_sequences) return unit_begin[num_sequences];
    return unit_begin[range.sequence] + range.head * sequences[range.sequence].num_chunks +
           range.chunk;
  }
};

// Running sums over a step's ranges.
struct RangeSums {
  const int32_t* begins = nullptr;  // [num_ranges + 1] the first unit, counted over all sequences
  const int32_t* filled = nullptr;  // [num_ranges] ranges with units, up to and including this one
  int32_t num_ranges = 0;

  // The range of a unit, and the number of ranges with units in [begin, end).
  constexpr int32_t RangeOf(int32_t unit) const { return LastAtMost(begins, num_ranges, unit); }
  constexpr int32_t Sharers(int32_t begin, int32_t end) const {
    return filled[RangeOf(end - 1)] - filled[RangeOf(begin)] + 1;
  }
};

// Completes range `r`, which begins at `range`; range r + 1 begins at `next`.
constexpr DecodeRange FillRange(const DecodeSums& sums, const RangeSums& ranges, int32_t r,
                                DecodeRange range, const DecodeRange& next) {
  range.num_units = ranges.begins[r + 1] - ranges.begins[r];
  if (range.num_units == 0) return range;
  range.first = sums.sequences[range.sequence];
  const int32_t begin = ranges.begins[r] - range.chunk;
  range.begin_owner = ranges.RangeOf(begin);
  range.begin_sharers = ranges.Sharers(begin, begin + range.first.num_chunks);
  if (next.chunk > 0) {
    const int32_t end = ranges.begins[r + 1] - next.chunk;
    range.end_sharers = ranges.Sharers(end, end + sums.sequences[next.sequence].num_chunks);
  }
  return range;
}

}  // namespace quire::cuda
