// TileWriter: the way of a tile's sums (tile_work.cuh) from registers to memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/cluster.cuh"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/warpgroup.cuh"
#include "kernels/cuda/matmul/tile_work.cuh"

namespace quire::cuda {

// A warp's results on their way to memory, 16 tokens at a time. With 20 floats a token the stores
// and the loads hit all banks.
inline constexpr int kStagedTokens = 16, kStagedPitch = 20;
using StagedSums = float[kSumWarps][kStagedTokens][kStagedPitch];
// A block's sums on their way to the blocks of its cluster: of each token this many floats.
inline constexpr int kSumPitch = kMaxRows + 4;

// Results that are the sums, with a bias of type T.
template <typename T>
struct SumsWithBias {
  const void* bias;  // null: none

  __device__ __forceinline__ static float Add(float a, float b) { return a + b; }

  struct OfRows {
    float bias[4];

    __device__ __forceinline__ float operator()(float sum, int, int i) const {
      return sum + bias[i];
    }
  };
  __device__ __forceinline__ OfRows ForRows(int row, int end) const {
    OfRows of_rows = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (bias != nullptr && row + i < end) {
        of_rows.bias[i] = ToFloat(static_cast<const T*>(bias)[row + i]);
      }
    }
    return of_rows;
  }
};

// The way of a tile's sums to `out`, by the warps that hold them. Results defines a sum:
// Add(a, b) adds two of them; ForRows(row, end) reads what the results of four rows need, of those
// before `end`, and returns an object. Called with a sum, its token of the tile and i, that object
// gives the result of row + i as a float. The call should read registers and shared memory alone:
// the compiler must assume that a store to `out` changes any memory of the device, so a load from
// there would wait for the stores before.
template <typename Out, int kTokens, typename Results>
struct TileWriter {
  const Work<kTokens>& work;
  const Results& results;
  Out* const out;
  const int64_t out_stride;
  StagedSums& warps_staged;
  float* const exchange;  // [kTokens][kSumPitch]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  __device__ __forceinline__ void Write(const Sums<kTokens>& sums, int tile,
                                        const Cluster& cluster) const {
    if (work.p.split == 1) {
      StoreTile(sums, tile);
    } else {
      ShareTile(sums, tile, cluster);
    }
  }

 private:
  static constexpr int kCount = 4;  // rows of a token that a lane stores

  // A lane's rows: kCount from `row` on, of which those before `end` exist.
  template <typename OfRows>
  struct StoredRows {
    int row, end;
    OfRows results;
  };
  __device__ __forceinline__ auto RowsAt(int row, int tile) const {
    const int end = min(work.p.n, work.Row(tile) + work.p.tile_rows);
    return StoredRows<decltype(results.ForRows(row, end))>{row, end, results.ForRows(row, end)};
  }
  // Stores the results of a token of the tile.
  template <typename OfRows>
  __device__ __forceinline__ void Store(const float4& sums, int tile, int token,
                                        const StoredRows<OfRows>& rows) const {
    Out* const to = out + (work.Token(tile) + token) * out_stride + rows.row;
    const float sum[kCount] = {sums.x, sums.y, sums.z, sums.w};
    alignas(16) Out values[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = FromFloat<Out>(rows.results(sum[i], token, i));
    using Whole = std::conditional_t<sizeof values == 16, uint4, uint2>;
    static_assert(sizeof(Whole) == sizeof values);
    if (rows.row + kCount <= rows.end && reinterpret_cast<uintptr_t>(to) % sizeof values == 0) {
      *reinterpret_cast<Whole*>(to) = *reinterpret_cast<const Whole*>(values);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (rows.row + i < rows.end) to[i] = values[i];
      }
    }
  }

  // A warp's results go through shared memory, so that a lane stores consecutive rows of a token.
  __device__ __forceinline__ void StoreTile(const Sums<kTokens>& sums, int tile) const {
    const int row = lane % (kWarpRows / kCount) * kCount;
    const auto rows = RowsAt(work.Row(tile) + warp * kWarpRows + row, tile);
    if (rows.row - row >= rows.end) return;  // the warp has no rows
    const int tokens = work.Tokens(tile);
    auto& staged = warps_staged[warp];
#pragma unroll
    for (int first = 0; first < kTokens; first += kStagedTokens) {
      if (first >= tokens) break;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int token = j / 4 * 8 + lane % 4 * 2 + j % 2;
        staged[token][lane / 4 + j / 2 % 2 * 8] = sums[first / 8 + j / 4][j % 4];
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kStagedTokens * kWarpRows / (32 * kCount); ++i) {
        const int from = (i * 32 + lane) / (kWarpRows / kCount);
        const float4 of_token = *reinterpret_cast<const float4*>(&staged[from][row]);
        if (first + from < tokens) Store(of_token, tile, first + from, rows);
      }
      __syncwarp();
    }
  }

  // Each block of the cluster adds and stores the sums of a part of the tokens.
  __device__ __forceinline__ void ShareTile(const Sums<kTokens>& sums, int tile,
                                            const Cluster& cluster) const {
    SyncNamed(kSumBarrier, kSumWarps * 32);  // all have read what lay at `exchange`
#pragma unroll
    for (int i = 0; i < kTokens / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        Exchanged(i * 8 + lane % 4 * 2 + j % 2)[warp * kWarpRows + lane / 4 + j / 2 * 8] =
            sums[i][j];
      }
    }
    const auto rows = RowsAt(work.Row(tile) + lane * kCount, tile);
    const int tokens = work.Tokens(tile);
    __syncwarp();
    cluster.Sync();
#pragma unroll 1
    for (int token = work.part * kSumWarps + warp; token < tokens;
         token += work.p.split * kSumWarps) {
      Store(SumOfBlocks(token, cluster), tile, token, rows);
    }
    FenceForProducts();  // before the supplier's next copies to this memory
    __syncwarp();
    cluster.Sync();
  }

  __device__ __forceinline__ float* Exchanged(int token) const {
    return exchange + token * kSumPitch;
  }
  // The sums of a lane's rows of a token, added in the order of the blocks. All are asked for
  // before the first is added.
  __device__ __forceinline__ float4 SumOfBlocks(int token, const Cluster& cluster) const {
    const auto* const mine = reinterpret_cast<const float4*>(Exchanged(token) + lane * kCount);
    float4 parts[kMaxTileSplit];
#pragma unroll
    for (int i = 0; i < kMaxTileSplit; ++i) {
      if (i < work.p.split) parts[i] = cluster.Read(mine, i);
    }
    float4 sum = parts[0];
#pragma unroll
    for (int i = 1; i < kMaxTileSplit; ++i) {
      if (i >= work.p.split) break;
      sum = {Results::Add(sum.x, parts[i].x), Results::Add(sum.y, parts[i].y),
             Results::Add(sum.z, parts[i].z), Results::Add(sum.w, parts[i].w)};
    }
    return sum;
  }
};

}  // namespace quire::cuda
