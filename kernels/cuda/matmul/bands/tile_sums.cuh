// The sums of a pass (band_product.cuh) as tiles of eight tokens, which matrix units compute beside
// 16 rows at a time: their way from the registers of all warps to memory.
#pragma once

#include "kernels/cuda/matmul/bands/band_product.cuh"
#include "kernels/cuda/matmul/bands/weight_passes.cuh"

namespace quire::cuda {

inline constexpr int kMatrixTokens = 8;  // of a tile
// Of a lane: two tokens of each tile and of rows r and r + 8 of a band.
template <typename Sum, int kBands, int kTiles>
using TileSums = Sum[kBands][kTiles][4];

// Tiles whose sums the warps exchange at a time. With 20 numbers a token the rows and tokens of a
// store hit 32 banks.
inline constexpr int kExchangedTiles = 2, kTokenPitch = 20;
template <typename Sum, int kWarps>
using TileExchange = Sum[kWarps][kExchangedTiles][kMatrixTokens][kTokenPitch];

// The steps of a pass.
template <int kBands, int kTiles>
constexpr int StoreSteps() {
  static_assert(kBands * kTiles % kExchangedTiles == 0);
  return kBands * kTiles / kExchangedTiles;
}

// A thread's share of each step of a pass: it stores a row of a band for one token.
template <int kTiles>
struct StoredPlace {
  static constexpr int kThreads = kExchangedTiles * kMatrixTokens * kBandRows;
  static_assert(kExchangedTiles % kTiles == 0);

  const int row = threadIdx.x % kBandRows;
  const int in_tile = threadIdx.x / kBandRows % kMatrixTokens;
  const int part = threadIdx.x / (kBandRows * kMatrixTokens) % kExchangedTiles;

  __device__ __forceinline__ int Token() const { return part % kTiles * kMatrixTokens + in_tile; }
  // The band of its pass.
  __device__ __forceinline__ int Band(int step) const {
    return (step * kExchangedTiles + part) / kTiles;
  }
  __device__ __forceinline__ bool Stores(int step, const RowPass& pass, int tokens) const {
    return threadIdx.x < kThreads && Band(step) < pass.bands && Token() < tokens;
  }
  __device__ __forceinline__ int Row(int step, const RowPass& pass) const {
    return (pass.begin + Band(step)) * kBandRows + row;
  }
};

// Adds the warps' sums of one pass, in the order of the warps. store(total, step, token, row) takes
// each. Then the sums are 0. By all warps that compute.
template <int kWarps, typename Sum, int kBands, int kTiles, typename Store>
__device__ __forceinline__ void StoreTiles(Sum (&sums)[kBands][kTiles][4], const RowPass& pass,
                                           int tokens, TileExchange<Sum, kWarps>& exchange,
                                           const Store& store) {
  static_assert(StoredPlace<kTiles>::kThreads <= kWarps * 32);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const StoredPlace<kTiles> place;
#pragma unroll
  for (int step = 0; step < StoreSteps<kBands, kTiles>(); ++step) {
    const int first = step * kExchangedTiles;
    if (first / kTiles >= pass.bands) break;
    SyncComputing<kWarps>();  // the sums of the last exchange have been read
#pragma unroll
    for (int i = 0; i < kExchangedTiles * 4; ++i) {
      const int band = (first + i / 4) / kTiles, tile = (first + i / 4) % kTiles, j = i % 4;
      exchange[warp][i / 4][lane % 4 * 2 + j % 2][lane / 4 + j / 2 * 8] = sums[band][tile][j];
      sums[band][tile][j] = 0;
    }
    SyncComputing<kWarps>();
    if (!place.Stores(step, pass, tokens)) continue;
    Sum total = exchange[0][place.part][place.in_tile][place.row];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) {
      total += exchange[i][place.part][place.in_tile][place.row];
    }
    store(total, step, place.Token(), place.Row(step, pass));
  }
}

}  // namespace quire::cuda
