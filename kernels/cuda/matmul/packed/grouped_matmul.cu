// out[t, r] = sum over groups of scale[r, group] * (sum over c of the group of x[t, c] * (w[r, c] -
// zero[r, group])), for at most 8 tokens: a stream of n * k weights of 4 or 8 bits past their
// activations, bound by one read of the weights.
//
// Weights become floats in registers. Elements less their zeros are exact in the type of the matrix
// units, so the sum over a group's columns in a chunk is that of exact products; it is multiplied
// by the scale in float32. To widen an element costs more than to multiply it, so the kernel is as
// near to the rate of instructions as to that of memory, and other warps copy the weights
// (band_product.cuh).
#include "kernels/cuda/matmul/packed/grouped_matmul.h"

#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/warp_tile.cuh"
#include "kernels/cuda/matmul/packed/band_product.cuh"
#include "kernels/cuda/matmul/packed/packed_weights.cuh"
#include "kernels/packed_row.h"

namespace quire::cuda {
namespace {

// Bands whose sums the warps exchange at a time. With 20 floats a token the rows and tokens of a
// store hit 32 banks.
constexpr int kExchanged = 2, kTokenPitch = 20;
using Exchange = float[kComputeWarps][kExchanged][kMaxGroupedTokens][kTokenPitch];
constexpr int kStored = kExchanged * kMaxGroupedTokens * kBandRows;  // sums of an exchange
static_assert(kStored <= kComputeThreads);

// A chunk of activations: word p of a span of 32 columns is the pair of columns 8p + 2q of this
// lane's token, q its place among four.
using Activations = uint32_t[kChunkSpans][4];

// Zeros stand for tokens and columns past the last.
template <typename T>
__device__ __forceinline__ void LoadChunk(const BandProduct& p, int chunk, Activations& x) {
  const int token = static_cast<int>(threadIdx.x % 32 / 4), column = chunk * kChunkColumns;
  const T* const from =
      static_cast<const T*>(p.x) + token * p.x_stride + column + threadIdx.x % 4 * 2;
#pragma unroll
  for (int span = 0; span < kChunkSpans; ++span) {
    const bool within = token < p.tokens && column + span * kPackedColumns < p.w.k;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const T* const at = from + span * kPackedColumns + pair * 8;
      x[span][pair] = within ? *reinterpret_cast<const uint32_t*>(at) : 0;
    }
  }
}

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

// Adds the products of a unit and a chunk of activations.
template <typename T, int kBits, int kGroups, typename Unit>
__device__ __forceinline__ void AddProducts(float (&sums)[4], int groups, const Unit& unit,
                                            const Activations& x) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    if (group >= groups) break;
    uint32_t zeros[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      zeros[j] = ZeroWord<T, kBits>(static_cast<uint32_t>(unit.zeros[group][j]));
    }
    float partial[2][4] = {};  // two sums, so that no product waits for the one before it
#pragma unroll
    for (int i = 0; i < 2 * kChunkSpans / kGroups; ++i) {
      const int half = group * (2 * kChunkSpans / kGroups) + i;
      uint32_t w[4];
      WidenHalf<T, kBits>(unit, half, zeros, w);
      const uint32_t* const pairs = &x[half / 2][half % 2 * 2];
      MultiplyAdd<T>(partial[i % 2], w, pairs[0], pairs[1]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] += unit.scales[group][i / 2] * (partial[0][i] + partial[1][i]);
    }
  }
}

template <typename T, int kBits, int kGroups>
struct GroupedWork {
  // Each pass loads the activations again; more bands take more registers than there are.
  static constexpr int kMaxBands = 8 - kGroups * kBits / 8;
  struct Shared {
    BandRing<kBits, kGroups> ring;
    Exchange sums;
  };
  // Of a lane: two tokens of rows r and r + 8 of a band.
  using Sums = float[kMaxBands][4];

  // Adds the warps' sums of one pass, in the order of the warps, and stores them.
  __device__ static __forceinline__ void StoreSums(const BandProduct& p, const Sums& sums,
                                                   const RowPass& pass, Exchange& exchange) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = threadIdx.x % kBandRows;
    const int token = threadIdx.x / kBandRows % kMaxGroupedTokens;
    const int part = threadIdx.x / (kBandRows * kMaxGroupedTokens) % kExchanged;
#pragma unroll
    for (int first = 0; first < kMaxBands; first += kExchanged) {
      if (first >= pass.bands) break;
      SyncComputing();  // the sums of the last exchange have been read
#pragma unroll
      for (int i = 0; i < kExchanged * 4; ++i) {
        const int band = first + i / 4, j = i % 4;
        if (band >= kMaxBands) break;
        exchange[warp][i / 4][lane % 4 * 2 + j % 2][lane / 4 + j / 2 * 8] = sums[band][j];
      }
      SyncComputing();
      if (threadIdx.x >= kStored || first + part >= pass.bands || token >= p.tokens) continue;
      float total = exchange[0][part][token][row];
#pragma unroll
      for (int i = 1; i < kComputeWarps; ++i) total += exchange[i][part][token][row];
      p.Store<T>(total, token, (pass.begin + first + part) * kBandRows + row);
    }
  }

  // A warp's part of a block's products.
  __device__ static __forceinline__ void Compute(const BandProduct& p, const RowShare& share,
                                                 Shared& shared) {
    using Reader = BandReader<BandRing<kBits, kGroups>>;
    const int warp = threadIdx.x / 32, k = p.w.k;
    Reader reader(shared.ring, p.w.zeros != nullptr);
    const int chunks = CeilDiv(k, kChunkColumns);
    for (RowPass pass(share); pass.begin < share.end; pass.Advance(share)) {
      Sums sums = {};
#pragma unroll 1
      for (int chunk = warp; chunk - warp < chunks; chunk += kComputeWarps) {
        if (chunk >= chunks) {
          for (int band = 0; band < pass.bands; ++band) reader.Skip();
          continue;
        }
        Activations x;
        LoadChunk<T>(p, chunk, x);
        const int groups = CeilDiv(k - chunk * kChunkColumns, kChunkColumns / kGroups);
#pragma unroll
        for (int band = 0; band < kMaxBands; ++band) {
          if (band >= pass.bands) break;
          typename Reader::Unit unit;
          reader.Take(unit);
          AddProducts<T, kBits, kGroups>(sums[band], groups, unit, x);
        }
      }
      StoreSums(p, sums, pass, shared.sums);
    }
  }
};

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

void PrepareGroupedMatMul() { BandKernels<GroupedWork>::Prepare(); }

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
  BandKernels<GroupedWork>::Enqueue(p, device);
}

}  // namespace quire::cuda
