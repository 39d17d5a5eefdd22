// SupplyTiles: the work of the warpgroup that copies the chunks of a block's tiles (tile_work.cuh)
// to a ring in shared memory.
//
// A supplier has the block's `work` and `shared` memory with the ring's barriers, its `place` in
// the ring, and CopyWeights and CopyTokens (place, tile, chunk), which start the copies of a chunk.
#pragma once

#include "kernels/cuda/device/cluster.cuh"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/matmul/tile_work.cuh"

namespace quire::cuda {

// Supplies the first chunks, at most kEarly, of the first tile: their weights need no predecessor.
// Returns the chunk behind them.
template <int kEarly, typename Supplier>
__device__ __forceinline__ int SupplyFirst(Supplier& s) {
  const int end = min(s.work.end, s.work.begin + kEarly), tile = s.work.First();
  auto early = s.place;
  for (int chunk = s.work.begin; chunk < end; ++chunk, early.Advance()) {
    s.CopyWeights(early, tile, chunk);
  }
  PdlWait();
  for (int chunk = s.work.begin; chunk < end; ++chunk, s.place.Advance()) {
    s.CopyTokens(s.place, tile, chunk);
  }
  return end;
}

// By all threads of the warpgroup, of which one `supplies`; the others take part in the barriers of
// the cluster that follow each divided tile.
template <int kEarly, typename Supplier>
__device__ __forceinline__ void SupplyTiles(Supplier& s, bool supplies, const Cluster& cluster) {
  const Tiling& tiling = s.work.p;
  int chunk = supplies ? SupplyFirst<kEarly>(s) : 0;
  for (int tile = s.work.First(); tile < tiling.tiles; tile += s.work.Stride()) {
    if (supplies) {
      for (; chunk < s.work.end; ++chunk, s.place.Advance()) {
        s.shared.Empty(s.place.stage).Wait(s.place.phase + 1);
        s.CopyWeights(s.place, tile, chunk);
        s.CopyTokens(s.place, tile, chunk);
      }
    }
    chunk = s.work.begin;
    __syncwarp();
    if (tiling.split == 1) continue;
    cluster.Sync();
    cluster.Sync();
  }
}

}  // namespace quire::cuda
