// TileCut: how TileMatMul and PackedMatMul divide a product among blocks of threads, and the cuts
// that are worth timing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/dtype.h"

namespace quire::cuda {

inline constexpr int kMaxTileRows = 128, kTileRowMultiple = 16, kMaxTileSplit = 4;
inline constexpr std::array kTileTokens = {32, 64, 128, 256};
inline constexpr std::array kPackedTileTokens = {16, 32, 64, 128};
// More tokens are left to the library, which is as fast from some hundreds on.
inline constexpr int64_t kMostTileTokens = 1024;
// Bytes of a row that TileMatMul multiplies at a time, and columns of packed weights.
inline constexpr int kTileChunkBytes = 128, kPackedChunk = 128;

struct TileCut {
  int rows = 0;    // of w in a tile: a multiple of kTileRowMultiple up to kMaxTileRows; 0: no cut
  int tokens = 0;  // in a tile: one of kTileTokens, of packed weights one of kPackedTileTokens
  int split = 1;   // blocks, one cluster, that divide the columns of a tile: up to kMaxTileSplit

  bool empty() const { return rows == 0; }
  bool operator==(const TileCut&) const = default;
};

// Clusters of each size that run on a device at the same time. A cluster lies within one of the
// groups of multiprocessors that a device has, so they are fewer than their number suggests.
using TileClusters = std::array<int, kMaxTileSplit + 1>;

struct TileProduct {
  int64_t tokens, n, k;
  DType weights;  // bf16, f16, e4m3 or packed
};

// At most `count` cuts, those that should take the least time first; at least one.
std::vector<TileCut> PromisingCuts(const TileProduct& product, const TileClusters& clusters,
                                   size_t count);

}  // namespace quire::cuda
