// Tiling and Work: how a product is divided into tiles, and which of them a block takes and when.
//
// A tile is up to 128 rows of w and a run of tokens. Eight warps, two warpgroups, hold its sums, 16
// rows each. Where there are too few tiles for the device, `split` blocks of a cluster divide the
// columns of a tile and add their sums through shared memory, in the order of the blocks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/matmul/tile_cut.h"

namespace quire::cuda {

inline constexpr int kSumWarps = 8, kWarpRows = 16, kGroupRows = 64;
inline constexpr int kMaxRows = kSumWarps * kWarpRows;
// The number of the barrier of the warps that hold sums.
inline constexpr int kSumBarrier = 1;
static_assert(kMaxRows == kMaxTileRows && kWarpRows == kTileRowMultiple);

// How a product is divided. Chunks are runs of columns.
struct Tiling {
  int tokens, n, chunks;
  int split, tile_rows, token_tiles, tiles;

  Tiling(const TileCut& cut, int64_t all_tokens, int64_t rows, int64_t all_chunks)
      : tokens(static_cast<int>(all_tokens)),
        n(static_cast<int>(rows)),
        chunks(static_cast<int>(all_chunks)),
        split(cut.split),
        tile_rows(cut.rows),
        token_tiles(CeilDiv(tokens, cut.tokens)),
        tiles(CeilDiv(n, cut.rows) * token_tiles) {
    CHECK_GE(chunks, split);
  }
  // The grid of a kernel with one block a multiprocessor.
  unsigned Blocks(const TileClusters& clusters) const {
    return static_cast<unsigned>(std::min(tiles, clusters[static_cast<size_t>(split)]) * split);
  }
};

// The tiles of a block, in the order of its work. Tiles of the same rows run at the same time, so
// that the second level of the cache has their weights.
template <int kTokens>
struct Work {
  const Tiling& p;
  const int part;        // this block's place among those that divide a tile
  const int begin, end;  // its chunks

  __device__ Work(const Tiling& tiling, int rank)
      : p(tiling),
        part(rank),
        begin(p.chunks * part / p.split),
        end(p.chunks * (part + 1) / p.split) {}
  __device__ __forceinline__ int First() const { return static_cast<int>(blockIdx.x) / p.split; }
  __device__ __forceinline__ int Stride() const { return static_cast<int>(gridDim.x) / p.split; }
  __device__ __forceinline__ int Row(int tile) const { return tile / p.token_tiles * p.tile_rows; }
  __device__ __forceinline__ int Token(int tile) const { return tile % p.token_tiles * kTokens; }
  // The tokens of a tile.
  __device__ __forceinline__ int Tokens(int tile) const {
    return min(kTokens, p.tokens - Token(tile));
  }
};

// The sums of a warp's 16 rows and a tile's tokens: blocks of eight tokens.
template <int kTokens>
using Sums = float[kTokens / 8][4];

}  // namespace quire::cuda
