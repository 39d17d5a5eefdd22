// Attention over one tile of keys: scores, online softmax and the weighted sum of values, for a few
// query heads that share the pass. Included once per instruction set, after vector_rows.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/vector_kernels.h"
#include "kernels/cpu/vector/vector_rows.h"

namespace quire::cpu {
namespace {

// One tile's keys and values in f32, one row of head_dim after another; only rows [begin, end) are
// set.
struct KeyTile {
  const float* k;
  const float* v;
  int64_t position;
  int begin, end;
};

// Query heads that see the same keys of a tile; row r is at q[r], its state at state + r * stride.
struct Rows {
  const float* q[kRowsAtOnce];
  float* state;
  int64_t stride;
  int begin, end;  // the keys of the tile that they see, at least one
};

// scores[r], lane j: q[r] . k[j].
template <int kRows>
QUIRE_INLINE void Scores(const Rows& rows, const KeyTile& tile, int64_t dim, Vec16* scores) {
  constexpr int kKeys = kScoresAtOnce / kRows;
  Vec16 sum[kRows][kKeyTile];
#pragma GCC unroll 16
  for (int j0 = 0; j0 < kKeyTile; j0 += kKeys) {
    const float* k = tile.k + j0 * dim;
    Vec16 part[kRows][kKeys];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int j = 0; j < kKeys; ++j) part[r][j] = Vec16::Set(0.0f);
    }
    EachVector(
        dim, [&](int64_t i, int n) __attribute__((always_inline)) {
          Vec16 q[kRows];
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) q[r] = InRegister(LoadN(rows.q[r] + i, n));
#pragma GCC unroll 16
          for (int j = 0; j < kKeys; ++j) {
            const Vec16 key = LoadN(k + j * dim + i, n);
#pragma GCC unroll 4
            for (int r = 0; r < kRows; ++r) part[r][j] = Fma(q[r], key, part[r][j]);
          }
        });
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int j = 0; j < kKeys; ++j) sum[r][j0 + j] = part[r][j];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) scores[r] = Sum16(sum[r]);
}

// Columns [at, at + 16 * kVectors) of the rows' sums: sum = sum * factor + weights . V.
template <int kRows, int kVectors>
QUIRE_INLINE void AddValues(const Rows& rows, const float* v, int64_t dim, const float* factor,
                            const float (*weight)[16]) {
  Vec16 acc[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      acc[r][i] = Vec16::Load(rows.state + r * rows.stride + 16 * i) * Vec16::Set(factor[r]);
    }
  }
  for (int j = rows.begin; j < rows.end; ++j) {
    Vec16 value[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) value[i] = InRegister(Vec16::Load(v + j * dim + 16 * i));
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Vec16 w = Vec16::Set(weight[r][j]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) acc[r][i] = Fma(w, value[i], acc[r][i]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) acc[r][i].Store(rows.state + r * rows.stride + 16 * i);
  }
}

// The factor and weights of one row's update of its sum.
struct RowWeights {
  float factor;         // of the sum so far
  const float* weight;  // [16]
};

// Updates the columns of row `row` past its last full vector.
void AddLastValues(const Rows& rows, int row, const KeyTile& tile, int64_t dim, RowWeights add) {
  const int64_t at = dim / 16 * 16;
  const int n = static_cast<int>(dim - at);
  float* sum = rows.state + row * rows.stride + at;
  Vec16 acc = Vec16::LoadPart(sum, n) * Vec16::Set(add.factor);
  for (int j = rows.begin; j < rows.end; ++j) {
    acc = Fma(Vec16::Set(add.weight[j]), Vec16::LoadPart(tile.v + j * dim + at, n), acc);
  }
  acc.StorePart(sum, n);
}

// kDim: the head dim if the compiler knows it, else 0.
template <int kDim, int kRows>
QUIRE_INLINE void AttendTile(const AttentionBlock& b, const Rows& rows, const KeyTile& tile) {
  const int64_t dim = kDim != 0 ? kDim : b.head_dim;
  Vec16 scores[kRows];
  Scores<kRows>(rows, tile, dim, scores);
  float change[16] = {};  // the old top minus the new top
  float new_top[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    scores[r] = scores[r] * Vec16::Set(b.scale);
    if (b.soft_cap > 0) scores[r] = SoftCap(scores[r], b.soft_cap);
    scores[r] = KeepLanes(scores[r], rows.begin, rows.end, -__builtin_inff());
    const float top = rows.state[r * rows.stride + dim], tile_top = MaxLane(scores[r]);
    new_top[r] = top > tile_top ? top : tile_top;
    change[r] = top - new_top[r];
  }
  float factor[16], weight[kRows][16];
  Exp(Vec16::Load(change)).Store(factor);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const Vec16 weights = Exp(scores[r] - Vec16::Set(new_top[r]));
    weights.Store(weight[r]);
    float* top_and_total = rows.state + r * rows.stride + dim;
    top_and_total[0] = new_top[r];
    top_and_total[1] = top_and_total[1] * factor[r] + Sum(weights);
  }
  constexpr int kWide = kScoresAtOnce / kRows < 8 ? kScoresAtOnce / kRows : 8;
  Rows part = rows;
  const float* v = tile.v;
  int64_t left = dim;
  const auto advance = [&](int64_t columns) {
    part.state += columns;
    v += columns;
    left -= columns;
  };
  for (; left >= 16 * kWide; advance(16 * kWide)) {
    AddValues<kRows, kWide>(part, v, dim, factor, weight);
  }
  for (; left >= 16; advance(16)) AddValues<kRows, 1>(part, v, dim, factor, weight);
  if (left == 0) return;
  for (int r = 0; r < kRows; ++r) {
    AddLastValues(rows, r, tile, dim, RowWeights{factor[r], weight[r]});
  }
}

}  // namespace
}  // namespace quire::cpu
