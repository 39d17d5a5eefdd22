// Attention's inner loops: online softmax over tiles of 16 keys that begin at multiples of 16. So a
// query sees its keys in the same tiles in any chunk of a prompt. Keys that a query does not see
// are never multiplied, not even by zero, because their slots may hold anything. Included once per
// instruction set, after vector_rows.h.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/vector/vector_attention_tile.h"
#include "kernels/cpu/vector/vector_kernels.h"
#include "kernels/cpu/vector/vector_rows.h"

namespace quire::cpu {
namespace {

// Points the tile at the cache if it can: a whole tile of f32 in one block. Copies any other tile,
// with zeros for the keys that no query sees.
template <typename C>
void LoadTile(const AttentionBlock& b, KeyTile& tile) {
  const int64_t dim = b.head_dim;
  const bool whole = tile.begin == 0 && tile.end == kKeyTile && b.block_size % kKeyTile == 0;
  if constexpr (sizeof(C) == sizeof(float)) {
    if (whole) {
      tile.k = static_cast<const float*>(b.kv.data) +
               b.blocks[tile.position / b.block_size] * b.block_stride +
               tile.position % b.block_size * dim;
      tile.v = tile.k + b.kv_stride;
      return;
    }
  }
  float* to_k = b.scratch;
  float* to_v = b.scratch + kKeyTile * dim;
  tile.k = to_k;
  tile.v = to_v;
  if (!whole) std::memset(to_k, 0, static_cast<size_t>(kKeyTile * dim) * sizeof(float));
  for (int j = tile.begin; j < tile.end; ++j) {
    const int64_t position = tile.position + j;
    const C* k = static_cast<const C*>(b.kv.data) +
                 b.blocks[position / b.block_size] * b.block_stride + position % b.block_size * dim;
    const C* v = k + b.kv_stride;
    if constexpr (sizeof(C) == sizeof(E4M3)) {
      for (int64_t i = 0; i < dim; ++i) to_k[j * dim + i] = b.k_values[k[i].bits];
      for (int64_t i = 0; i < dim; ++i) to_v[j * dim + i] = b.v_values[v[i].bits];
    } else {
      EachVector(dim, [&](int64_t i, int n) {
        StoreN(LoadN(k + i, n), to_k + j * dim + i, n);
        StoreN(LoadN(v + i, n), to_v + j * dim + i, n);
      });
    }
  }
}

QUIRE_INLINE int Clamp16(int64_t x) { return x < 0 ? 0 : x > 16 ? 16 : static_cast<int>(x); }

void InitStates(const AttentionBlock& b) {
  const int64_t stride = AttentionStateStride(b.head_dim);
  for (int64_t r = 0; r < int64_t{b.tokens} * b.group; ++r) {
    float* state = b.state + r * stride;
    std::memset(state, 0, static_cast<size_t>(stride) * sizeof(float));
    state[b.head_dim] = -__builtin_inff();
  }
}

// Attends for all heads of tokens [token, token + count), which see keys [begin, end) of the tile.
template <int kDim>
void AttendTokens(const AttentionBlock& b, const KeyTile& tile, int32_t token, int32_t count,
                  Rows rows) {
  rows.stride = AttentionStateStride(b.head_dim);
  const int64_t first = int64_t{token} * b.group, last = first + int64_t{count} * b.group;
  const auto take = [&](int64_t row, int n) {
    for (int r = 0; r < n; ++r) {
      rows.q[r] = b.q + (row + r) / b.group * b.q_stride + (row + r) % b.group * b.head_dim;
    }
    rows.state = b.state + row * rows.stride;
  };
  int64_t row = first;
  for (; row + kRowsAtOnce <= last; row += kRowsAtOnce) {
    take(row, kRowsAtOnce);
    AttendTile<kDim, kRowsAtOnce>(b, rows, tile);
  }
  if constexpr (kRowsAtOnce > 2) {
    for (; row + 2 <= last; row += 2) {
      take(row, 2);
      AttendTile<kDim, 2>(b, rows, tile);
    }
  }
  for (; row < last; ++row) {
    take(row, 1);
    AttendTile<kDim, 1>(b, rows, tile);
  }
}

// Groups the tokens that see the same keys of the tile: all tokens, except at the diagonal and at
// the window's edge.
template <int kDim>
void AttendTokensOfTile(const AttentionBlock& b, const KeyTile& tile) {
  const auto visible = [&](int32_t token) {
    const int64_t position = b.position + token;
    const int from = b.window > 0 ? Clamp16(position - b.window + 1 - tile.position) : 0;
    const int to = Clamp16(position + 1 - tile.position);
    Rows rows = {};
    rows.begin = from > tile.begin ? from : tile.begin;
    rows.end = to < tile.end ? to : tile.end;
    return rows;
  };
  for (int32_t token = 0, count = 0; token < b.tokens; token += count) {
    const Rows rows = visible(token);
    for (count = 1; token + count < b.tokens; ++count) {
      const Rows next = visible(token + count);
      if (next.begin != rows.begin || next.end != rows.end) break;
    }
    if (rows.begin < rows.end) AttendTokens<kDim>(b, tile, token, count, rows);
  }
}

// Prefetches the next tile, which lies in another block, where no hardware prefetcher looks.
template <typename C>
QUIRE_INLINE void PrefetchTile(const AttentionBlock& b, int64_t position, int64_t end) {
  constexpr int64_t kLine = 64 / sizeof(C);
  if (position >= end) return;
  const int64_t in_block = position % b.block_size, in_tile = b.block_size - in_block;
  const C* k = static_cast<const C*>(b.kv.data) +
               b.blocks[position / b.block_size] * b.block_stride + in_block * b.head_dim;
  const int64_t count = (in_tile < kKeyTile ? in_tile : kKeyTile) * b.head_dim;
  for (int64_t i = 0; i < count; i += kLine) {
    __builtin_prefetch(k + i);
    __builtin_prefetch(k + b.kv_stride + i);
  }
}

template <typename C>
void AttendOf(const AttentionBlock& b) {
  InitStates(b);
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
    PrefetchTile<C>(b, at + kKeyTile, end);
    switch (b.head_dim) {
      case 64: AttendTokensOfTile<64>(b, tile); break;
      case 128: AttendTokensOfTile<128>(b, tile); break;
      default: AttendTokensOfTile<0>(b, tile); break;
    }
  }
}

void Attend(const AttentionBlock& b) {
  DispatchStored(b.kv.dtype, [&](auto tag) { AttendOf<decltype(tag)>(b); });
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
