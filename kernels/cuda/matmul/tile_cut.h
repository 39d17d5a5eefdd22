// TileCut: how TileMatMul divides a product among blocks of threads, and the cuts that are worth
// timing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::cuda {

inline constexpr int kMaxTileRows = 128, kTileRowMultiple = 16, kMaxTileSplit = 3;
inline constexpr std::array kTileTokens = {32, 64, 128, 256};
// More tokens are left to the library, which is as fast from some hundreds on.
inline constexpr int64_t kMostTileTokens = 1024;
// Bytes of a row that are multiplied at a time.
inline constexpr int kTileChunkBytes = 128;

struct TileCut {
  int rows = 0;    // of w in a tile: a multiple of kTileRowMultiple up to kMaxTileRows; 0: no cut
  int tokens = 0;  // in a tile: one of kTileTokens
  int split = 1;   // blocks, one cluster, that divide the columns of a tile: up to kMaxTileSplit

  bool empty() const { return rows == 0; }
  bool operator==(const TileCut&) const = default;
};

// Clusters of each size that run on a device at the same time. A cluster lies within one of the
// groups of multiprocessors that a device has, so they are fewer than their number suggests.
using TileClusters = std::array<int, kMaxTileSplit + 1>;

struct TileProduct {
  int64_t tokens, n, row_bytes;
  bool eight_bit;
};

// At most `count` cuts, those that should take the least time first; at least one.
std::vector<TileCut> PromisingCuts(const TileProduct& product, const TileClusters& clusters,
                                   size_t count);

}  // namespace quire::cuda
