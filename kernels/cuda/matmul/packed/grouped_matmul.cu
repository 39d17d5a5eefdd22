// out[t, r] = sum over groups of scale[r, group] * (sum over c of the group of x[t, c] * (w[r, c] -
// zero[r, group])), for at most 16 tokens: a stream of n * k weights of 4 or 8 bits, each read
// once, past their activations.
//
// Weights become floats in registers. Elements less their zeros are exact in the type of the matrix
// units, so the sum over a group's columns in a chunk is that of exact products; it is multiplied
// by the scale in float32. Two tiles of eight tokens share the widened weights, so the second costs
// less than half as much as the first.
#include "kernels/cuda/matmul/packed/grouped_matmul.h"

#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/warp_tile.cuh"
#include "kernels/cuda/matmul/bands/activation_ring.cuh"
#include "kernels/cuda/matmul/bands/band_product.cuh"
#include "kernels/cuda/matmul/bands/band_walk.cuh"
#include "kernels/cuda/matmul/bands/tile_sums.cuh"
#include "kernels/cuda/matmul/packed/packed_bands.cuh"
#include "kernels/cuda/matmul/packed/packed_weights.cuh"
#include "kernels/packed_row.h"

namespace quire::cuda {
namespace {

// Half a span of a unit, 16 columns, as the first operand: of rows r and r + 8, then of both eight
// columns further.
template <typename T, int kBits, typename Unit>
__device__ __forceinline__ void WidenHalf(const Unit& unit, int half, const uint32_t (&zeros)[2],
                                          uint32_t (&w)[4]) {
  constexpr int kPairs = 16 / kBits;  // of a word
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int pair = half * 2 + i / 2;
    w[i] = WidenPair<T, kBits>(unit.words[i % 2][pair / kPairs], pair % kPairs, zeros[i % 2]);
  }
}

// Adds the products of a unit and the tiles.
template <typename T, int kBits, int kGroups, typename Unit, int kTiles>
__device__ __forceinline__ void AddProducts(
    float (&sums)[kTiles][4], int groups, const Unit& unit,
    const ActivationRing<T, kChunkColumns, kTiles>& activations) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    if (group >= groups) break;
    uint32_t zeros[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      zeros[j] = ZeroWord<T, kBits>(static_cast<uint32_t>(unit.zeros[group][j]));
    }
    float partial[kTiles][2][4] = {};  // two sums, so that no product waits for the one before it
#pragma unroll
    for (int i = 0; i < kChunkSpans / kGroups; ++i) {
      const int span = group * (kChunkSpans / kGroups) + i;
      uint32_t x[kTiles][4];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) activations.Get(tile, span, x[tile]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t w[4];
        WidenHalf<T, kBits>(unit, span * 2 + half, zeros, w);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          MultiplyAdd<T>(partial[tile][half], w, x[tile][half * 2], x[tile][half * 2 + 1]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) {
      const auto& [even, odd] = partial[i / 4];
      sums[i / 4][i % 4] += unit.scales[group][i % 4 / 2] * (even[i % 4] + odd[i % 4]);
    }
  }
}

template <typename T, int kBits, int kGroups, int kTiles>
struct GroupedWork {
  // The most usual format leaves room for small kernels; others take the registers that there are.
  static constexpr bool kUsual = kTiles == 1 && kGroups == 1 && kBits == 4;
  static constexpr int kWarps = 16, kRegisters = kUsual ? 72 : 96;
  static_assert(LeavesRoom(kWarps, kRegisters) == kUsual);
  // Each pass reads the activations again; with more bands the compiler spills.
  static constexpr int kOfTwoTiles = kBits == 4 ? 3 : kGroups == 2 ? 1 : 2;
  static constexpr int kMaxBands = kUsual ? 4 : kTiles == 1 ? 6 : kOfTwoTiles;
  using Ring = BandRing<kBits, kGroups, kWarps, 132 << 10>;  // activations and sums take the rest
  using Activations = ActivationRing<T, kChunkColumns, kTiles>;
  struct Shared {
    Ring ring;
    alignas(256) typename Activations::Slots activations[kWarps];
    TileExchange<float, kWarps> sums;
  };

  // A warp's part of a block's products.
  __device__ static __forceinline__ void Compute(const BandProduct& p, const RowShare& share,
                                                 Shared& shared) {
    const int warp = threadIdx.x / 32, k = p.w.k;
    BandReader<Ring> reader(shared.ring, p.w.zeros != nullptr);
    Activations activations(p, shared.activations[warp], warp);
    TileSums<float, kMaxBands, kTiles> sums = {};
    int groups = 0;  // of the chunk
    const auto begin = [&](int chunk, int next) {
      activations.Take(chunk, next);
      groups = CeilDiv(k - chunk * kChunkColumns, kChunkColumns / kGroups);
    };
    const auto add = [&](int band, const auto& unit) {
      AddProducts<T, kBits, kGroups>(sums[band], groups, unit, activations);
    };
    const auto end = [&](const RowPass& pass) {
      StoreTiles<kWarps>(sums, pass, p.tokens, shared.sums,
                         [&](float sum, int, int token, int row) { p.Store<T>(sum, token, row); });
    };
    WalkBands<kMaxBands>(share, CeilDiv(k, kChunkColumns), reader,
                         BandSteps{NoStart{}, begin, add, end});
    activations.End();
  }
};

template <typename T, int kBits, int kGroups>
using OneTile = GroupedWork<T, kBits, kGroups, 1>;
template <typename T, int kBits, int kGroups>
using TwoTiles = GroupedWork<T, kBits, kGroups, 2>;
static_assert(kMaxGroupedTokens == 2 * kMatrixTokens);

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

void PrepareGroupedMatMul() {
  PackedBands<OneTile>::Prepare();
  PackedBands<TwoTiles>::Prepare();
}

bool FitsGroupedMatMul(const MatMulParams& p) {
  constexpr int64_t kMaxDim = int64_t{1} << 30;
  const TensorView &w = p.w, &x = p.x;
  const int group = w.scale_columns;
  if (!IsPacked(w.dtype) || p.out.dtype != x.dtype) return false;
  const bool divides = group == 0 || group == 32 || group == 64 || group % kChunkColumns == 0;
  const bool scales = Aligned(w.scales) && Aligned(w.zeros) && w.scale_rows == 1 &&
                      (w.scale_stride % 16 == 0 || group == 0);
  const bool rows = w.dim[0] % kBandRows == 0 && w.dim[1] % kPackedColumns == 0 &&
                    w.row_stride % kPackedColumns == 0 && Aligned(w.data);
  return divides && scales && rows && w.dim[0] < kMaxDim && w.dim[1] < kMaxDim &&
         x.row_stride % 8 == 0 && Aligned(x.data);
}

void GroupedMatMul(const MatMulParams& p, const Device& device) {
  CHECK(FitsGroupedMatMul(p) && p.x.dim[0] <= kMaxGroupedTokens);
  if (p.x.dim[0] <= kMatrixTokens) return PackedBands<OneTile>::Enqueue(p, device);
  PackedBands<TwoTiles>::Enqueue(p, device);
}

}  // namespace quire::cuda
