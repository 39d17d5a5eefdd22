// How prefill attention divides a sequence: plain arithmetic for the device and for tests on the
// host.
//
// A sequence is cut into tiles of 128 rows, row = query * G + (head in its group). An item of work
// is a tile of one key/value head. Where the items of a sequence are too few for a device and its
// context is long, each tile's context is cut too, into spans of about equal length: every span
// yields a state (sum, top and sum of weights of each row), and the states of a tile are folded in
// the order of the spans.
//
// Usually every span is an item of its own, and when all items have ended the states are folded,
// each tile's by as many warpgroups as it has spans. A step with more states than there is memory
// for has tiles whose item takes all spans, one after another, and folds each state into the sum of
// those before. The order is the same, so a row's bits do not tell which.
#pragma once

#include <cstdint>

#include "kernels/ceil_div.h"

namespace quire::cuda {

inline constexpr int32_t kPrefillRows = 128;
// The items that the cut aims at: the multiprocessors of an H100 or H200. It is a constant because
// bits must not depend on the device.
inline constexpr int32_t kFillingItems = 132;
inline constexpr int32_t kMostItems = 4 * kFillingItems;  // of a sequence with spans
inline constexpr int32_t kMaxSpans = 64;
inline constexpr int32_t kSpanTurn = 128, kLeastTurns = 4;  // tokens of a turn; turns of a span
inline constexpr int32_t kSpanCost = 2;  // of an item in turns: its first turn and its state
inline constexpr int32_t kLeastCutTokens = 2 * kLeastTurns * kSpanTurn;

// By value: device code has no address of a constant.
constexpr int32_t Smaller(int32_t a, int32_t b) { return a < b ? a : b; }

// The time of a sequence in turns. Its items run in rounds of kFillingItems.
constexpr int32_t TurnsWith(int32_t spans, int32_t items, int32_t turns) {
  return CeilDiv(items * spans, kFillingItems) * (CeilDiv(turns, spans) + kSpanCost);
}

// Spans of each tile of a sequence, 1 if its context stays whole. It depends on the sequence alone:
// on its items (tiles times key/value heads) and on `seen`, the tokens that each of its queries
// sees at least. More spans must save an eighth of the time. Any change here changes output bits.
constexpr int32_t SpansOf(int32_t items, int32_t seen) {
  const int32_t turns = seen / kSpanTurn;
  const int32_t most = Smaller(kMaxSpans, Smaller(turns / kLeastTurns, kMostItems / items));
  int32_t best = 1, best_time = TurnsWith(1, items, turns);
  for (int32_t spans = 2; spans <= most; ++spans) {
    const int32_t time = TurnsWith(spans, items, turns);
    if (8 * time > 7 * best_time) continue;
    best = spans;
    best_time = time;
  }
  return best;
}

// A sequence of the prefill kernel. States of a tile and head have state_rows rows each.
struct PrefillSequence {
  int32_t query_begin = 0;
  int32_t num_queries = 0;
  int32_t context = 0;
  int32_t table_row = 0;
  int32_t tiles = 0;
  int32_t spans = 1;
  int32_t state_rows = 0;

  // Rows of all its states, if every span is an item: at most kMostItems * kPrefillRows.
  constexpr int32_t AllStateRows(int32_t num_kv_heads) const {
    return spans == 1 ? 0 : tiles * num_kv_heads * spans * state_rows;
  }
};

constexpr PrefillSequence PlanPrefill(PrefillSequence s, int32_t group, int32_t num_kv_heads,
                                      int32_t window) {
  const int32_t rows = s.num_queries * group, first_sees = s.context - s.num_queries + 1;
  s.tiles = CeilDiv(rows, kPrefillRows);
  if (s.tiles == 0) return s;
  s.spans = SpansOf(s.tiles * num_kv_heads, window > 0 ? Smaller(window, first_sees) : first_sees);
  s.state_rows = Smaller(rows, kPrefillRows);
  return s;
}

// Where a tile's states lie if its item takes all spans: in memory of the CTA, which has room for
// kOwnStateCount of them.
inline constexpr int32_t kOwnStates = -1, kOwnStateCount = 3;

// 128 rows of a prefill sequence from first_row on, and num_taken of the tile's spans from
// first_span on, for every key/value head.
struct alignas(16) PrefillTile {
  int32_t query_begin = 0;
  int32_t num_queries = 0;
  int32_t context = 0;
  int32_t table_row = 0;
  int32_t first_row = 0;
  int32_t spans = 1;
  int32_t first_span = 0;
  int32_t num_taken = 1;
  int32_t state_rows = 0;
  int32_t states = 0;  // the first row of the states of head 0, then of the other heads
  int32_t reserved[2] = {};

  // The tile's rows that have a query.
  constexpr int32_t RowsWith(int32_t group) const {
    return Smaller(num_queries * group - first_row, kPrefillRows);
  }
  // The first row of a span's state.
  constexpr int32_t StateOf(int32_t head, int32_t span) const {
    return states + (head * spans + span) * state_rows;
  }
};

// Tile number `at` of a sequence, of tiles * spans, or of tiles if `states` is kOwnStates; else
// `states` is the first row of the sequence's states. Tiles are numbered from the sequence's end:
// those with the longest contexts start first, so that short ones fill the last round.
constexpr PrefillTile TileAt(const PrefillSequence& s, int32_t at, int32_t states,
                             int32_t num_kv_heads) {
  PrefillTile tile;
  tile.query_begin = s.query_begin;
  tile.num_queries = s.num_queries;
  tile.context = s.context;
  tile.table_row = s.table_row;
  tile.spans = s.spans;
  tile.state_rows = s.state_rows;
  const bool apart = states != kOwnStates;
  const int32_t from_end = apart ? at / s.spans : at;
  tile.first_row = (s.tiles - 1 - from_end) * kPrefillRows;
  tile.first_span = apart ? at % s.spans : 0;
  tile.num_taken = apart ? 1 : s.spans;
  tile.states = apart ? states + from_end * num_kv_heads * s.spans * s.state_rows : kOwnStates;
  return tile;
}

// The first of a tile's `turns` turns in a span: every span has turns / spans of them, or one more.
constexpr int32_t FirstTurn(int32_t turns, int32_t spans, int32_t span) {
  return span * turns / spans;
}

}  // namespace quire::cuda
