// Attention's inner loops: online softmax over tiles of 16 keys that begin at multiples of 16, so a
// query sees its keys in the same tiles whichever chunk of a prompt it came in. Keys a query may
// not see are never multiplied, not even by zero: their slots may hold anything. Included once per
// instruction set, after vector_rows.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/vector_kernels.h"
#include "kernels/cpu/vector_rows.h"

namespace quire::cpu {
namespace {

// One tile's keys and values in f32, row by row; only rows [begin, end) may be read.
struct KeyTile {
  const float* k[kKeyTile];
  const float* v[kKeyTile];
  int64_t position;
  int begin, end;
};

template <typename C>
void LoadTile(const AttentionBlock& b, KeyTile& tile) {
  const int64_t dim = b.head_dim;
  float* room_k = b.room;
  float* room_v = room_k + kKeyTile * dim;
  const float* zeros = room_v + kKeyTile * dim;
  for (int j = 0; j < kKeyTile; ++j) {
    tile.k[j] = tile.v[j] = zeros;
    if (j < tile.begin || j >= tile.end) continue;
    const int64_t position = tile.position + j;
    const C* k = static_cast<const C*>(b.kv.data) +
                 b.blocks[position / b.block_size] * b.block_stride + position % b.block_size * dim;
    const C* v = k + b.kv_stride;
    if constexpr (sizeof(C) == sizeof(float)) {
      tile.k[j] = k;
      tile.v[j] = v;
    } else {
      float* to_k = room_k + j * dim;
      float* to_v = room_v + j * dim;
      EachVector(dim, [&](int64_t i, int n) {
        StoreN(LoadN(k + i, n), to_k + i, n);
        StoreN(LoadN(v + i, n), to_v + i, n);
      });
      tile.k[j] = to_k;
      tile.v[j] = to_v;
    }
  }
}

// Lane j: q . k[j].
QUIRE_INLINE Vec16 Scores(const float* q, const KeyTile& tile, int64_t dim) {
  Vec16 sum[kKeyTile];
#pragma GCC unroll 16
  for (int j0 = 0; j0 < kKeyTile; j0 += kKeysAtOnce) {
#pragma GCC unroll 16
    for (int j = 0; j < kKeysAtOnce; ++j) sum[j0 + j] = Vec16::Set(0.0f);
    EachVector(
        dim, [&](int64_t i, int n) __attribute__((always_inline)) {
          const Vec16 part = LoadN(q + i, n);
#pragma GCC unroll 16
          for (int j = 0; j < kKeysAtOnce; ++j) {
            sum[j0 + j] = Fma(part, LoadN(tile.k[j0 + j] + i, n), sum[j0 + j]);
          }
        });
  }
  return Sum16(sum);
}

// sum[0, 16 * kVectors) = sum * factor + weights . V.
template <int kVectors>
QUIRE_INLINE void AddValues(float* sum, const float* const* v, const float* weight, int begin,
                            int end, float factor, int64_t at) {
  Vec16 acc[kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) acc[i] = Vec16::Load(sum + at + 16 * i) * Vec16::Set(factor);
  for (int j = begin; j < end; ++j) {
    const Vec16 w = Vec16::Set(weight[j]);
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) acc[i] = Fma(w, Vec16::Load(v[j] + at + 16 * i), acc[i]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) acc[i].Store(sum + at + 16 * i);
}

// One query head against one tile, of which it sees keys [begin, end), at least one.
QUIRE_INLINE void AttendTile(const AttentionBlock& b, const float* q, const KeyTile& tile,
                             int begin, int end, float* state) {
  const int64_t dim = b.head_dim;
  const float minus_infinity = -__builtin_inff();
  float& top = state[dim];
  float& total = state[dim + 1];
  const Vec16 scores =
      KeepLanes(Scores(q, tile, dim) * Vec16::Set(b.scale), begin, end, minus_infinity);
  const float tile_top = MaxLane(scores);
  const float new_top = top > tile_top ? top : tile_top;
  float change[16];
  Exp(Vec16::Set(top - new_top)).Store(change);
  const float factor = change[0];
  const Vec16 weights = Exp(scores - Vec16::Set(new_top));
  float weight[16];
  weights.Store(weight);
  top = new_top;
  total = total * factor + Sum(weights);
  int64_t i = 0;
  for (; i + 128 <= dim; i += 128) AddValues<8>(state, tile.v, weight, begin, end, factor, i);
  for (; i + 64 <= dim; i += 64) AddValues<4>(state, tile.v, weight, begin, end, factor, i);
  for (; i + 16 <= dim; i += 16) AddValues<1>(state, tile.v, weight, begin, end, factor, i);
  if (i == dim) return;
  const int n = static_cast<int>(dim - i);
  Vec16 acc = Vec16::LoadPart(state + i, n) * Vec16::Set(factor);
  for (int j = begin; j < end; ++j) {
    acc = Fma(Vec16::Set(weight[j]), Vec16::LoadPart(tile.v[j] + i, n), acc);
  }
  acc.StorePart(state + i, n);
}

QUIRE_INLINE int Clamp16(int64_t x) { return x < 0 ? 0 : x > 16 ? 16 : static_cast<int>(x); }

void InitStates(const AttentionBlock& b) {
  std::memset(b.room + 2 * kKeyTile * b.head_dim, 0,
              static_cast<size_t>(b.head_dim) * sizeof(float));
  const int64_t stride = AttentionStateStride(b.head_dim);
  for (int64_t r = 0; r < int64_t{b.tokens} * b.group; ++r) {
    float* state = b.state + r * stride;
    std::memset(state, 0, static_cast<size_t>(stride) * sizeof(float));
    state[b.head_dim] = -__builtin_inff();
  }
}

template <typename C>
void AttendOf(const AttentionBlock& b) {
  InitStates(b);
  const int64_t stride = AttentionStateStride(b.head_dim);
  const int64_t last = b.position + b.tokens - 1;
  const int64_t first_key = b.window > 0 ? b.position - b.window + 1 : 0;
  const int64_t begin = b.keys_begin > first_key ? b.keys_begin : first_key;
  const int64_t end = b.keys_end < last + 1 ? b.keys_end : last + 1;
  for (int64_t at = begin / kKeyTile * kKeyTile; at < end; at += kKeyTile) {
    KeyTile tile;
    tile.position = at;
    tile.begin = Clamp16(begin - at);
    tile.end = Clamp16(end - at);
    LoadTile<C>(b, tile);
    for (int32_t t = 0; t < b.tokens; ++t) {
      const int64_t position = b.position + t;
      int from = tile.begin;
      if (b.window > 0 && position - b.window + 1 - at > from) {
        from = Clamp16(position - b.window + 1 - at);
      }
      const int to = Clamp16(position + 1 - at) < tile.end ? Clamp16(position + 1 - at) : tile.end;
      if (from >= to) continue;
      for (int32_t h = 0; h < b.group; ++h) {
        AttendTile(b, b.q + t * b.q_stride + h * b.head_dim, tile, from, to,
                   b.state + (int64_t{t} * b.group + h) * stride);
      }
    }
  }
}

void Attend(const AttentionBlock& b) {
  DispatchFloat(b.kv.dtype, [&](auto tag) { AttendOf<decltype(tag)>(b); });
}

void FoldState(float* state, const float* later, int64_t dim) {
  const float top = state[dim], later_top = later[dim];
  if (later_top == -__builtin_inff()) return;
  if (top == -__builtin_inff()) {
    std::memcpy(state, later, static_cast<size_t>(dim + 2) * sizeof(float));
    return;
  }
  const float new_top = top > later_top ? top : later_top;
  float exps[16] = {top - new_top, later_top - new_top};
  Exp(Vec16::Load(exps)).Store(exps);
  const Vec16 a = Vec16::Set(exps[0]), c = Vec16::Set(exps[1]);
  EachVector(dim, [&](int64_t i, int n) {
    StoreN(LoadN(state + i, n) * a + LoadN(later + i, n) * c, state + i, n);
  });
  state[dim] = new_top;
  state[dim + 1] = state[dim + 1] * exps[0] + later[dim + 1] * exps[1];
}

void FinishState(const float* state, float* out, int64_t dim) {
  const Vec16 total = Vec16::Set(state[dim + 1]);
  EachVector(dim, [&](int64_t i, int n) { StoreN(LoadN(state + i, n) / total, out + i, n); });
}

}  // namespace
}  // namespace quire::cpu
