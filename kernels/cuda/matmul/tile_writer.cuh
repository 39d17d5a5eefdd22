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

// The way of a tile's sums to `out`, by the warps that hold them. Value: (sum, token, row) to the
// result as a float; it is not asked for rows past the last.
template <typename Out, int kTokens, typename Value>
struct TileWriter {
  const Work<kTokens>& work;
  const Value& value;
  Out* const out;
  const int64_t out_stride;
  StagedSums& warps_staged;
  float* const exchange;  // [kTokens][kSumPitch]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  __device__ __forceinline__ float* Exchanged(int token) const {
    return exchange + token * kSumPitch;
  }

  // Stores values of one token and kCount rows.
  template <int kCount>
  __device__ __forceinline__ void StoreRows(const float (&sums)[kCount], int token, int row,
                                            int end) const {
    Out* const to = out + token * out_stride + row;
    alignas(16) Out values[kCount];
    if (row + kCount <= end && reinterpret_cast<uintptr_t>(to) % sizeof values == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] = FromFloat<Out>(value(sums[i], token, row + i));
      using Whole = std::conditional_t<sizeof values == 16, uint4, uint2>;
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof values / sizeof(Whole)); ++i) {
        reinterpret_cast<Whole*>(to)[i] = reinterpret_cast<const Whole*>(values)[i];
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (row + i < end) to[i] = FromFloat<Out>(value(sums[i], token, row + i));
      }
    }
  }

  // A warp's results go through shared memory, so that a lane stores consecutive rows of a token.
  __device__ __forceinline__ void StoreTile(const Sums<kTokens>& sums, int tile) const {
    const int first_row = work.Row(tile) + warp * kWarpRows;
    const int end = min(work.p.n, work.Row(tile) + work.p.tile_rows);
    if (first_row >= end) return;
    constexpr int kCount = 4;
    auto& staged = warps_staged[warp];
#pragma unroll
    for (int first = 0; first < kTokens; first += kStagedTokens) {
      if (work.Token(tile) + first >= work.p.tokens) break;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int token = j / 4 * 8 + lane % 4 * 2 + j % 2;
        staged[token][lane / 4 + j / 2 % 2 * 8] = sums[first / 8 + j / 4][j % 4];
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kStagedTokens * kWarpRows / (32 * kCount); ++i) {
        const int from = (i * 32 + lane) / (kWarpRows / kCount);
        const int row = lane % (kWarpRows / kCount) * kCount;
        const int token = work.Token(tile) + first + from;
        float values[kCount];
        *reinterpret_cast<float4*>(values) = *reinterpret_cast<const float4*>(&staged[from][row]);
        if (token < work.p.tokens) StoreRows(values, token, first_row + row, end);
      }
      __syncwarp();
    }
  }

  // Each block of the cluster adds and stores the sums of a part of the tokens.
  __device__ __forceinline__ void ShareTile(const Sums<kTokens>& sums, int tile,
                                            const Cluster& cluster) const {
    SyncNamed(1, kSumWarps * 32);  // all have read what lay at `exchange`
#pragma unroll
    for (int i = 0; i < kTokens / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        Exchanged(i * 8 + lane % 4 * 2 + j % 2)[warp * kWarpRows + lane / 4 + j / 2 * 8] =
            sums[i][j];
      }
    }
    __syncwarp();
    cluster.Sync();
    const int end = min(work.p.n, work.Row(tile) + work.p.tile_rows);
    const int row = work.Row(tile) + lane * 4;
    const int left = min(kTokens, work.p.tokens - work.Token(tile));
    for (int token = work.part * kSumWarps + warp; token < left;
         token += work.p.split * kSumWarps) {
      float values[4] = {};
      for (int i = 0; i < work.p.split; ++i) {
        const float* const from = cluster.At(Exchanged(token), i);
        const float4 part = *reinterpret_cast<const float4*>(from + lane * 4);
        values[0] += part.x;
        values[1] += part.y;
        values[2] += part.z;
        values[3] += part.w;
      }
      StoreRows(values, work.Token(tile) + token, row, end);
    }
    FenceForProducts();  // before the supplier's next copies to this memory
    __syncwarp();
    cluster.Sync();
  }
};

}  // namespace quire::cuda
