// out[t, r] = sum over groups of scale[r, group] * (sum over c of the group of x[t, c] * (w[r, c] -
// zero[r, group])), for one or two tokens: a stream of n * k weights of 4 or 8 bits past their
// activations, bound by one read of the weights.
//
// To widen a weight to a float costs more than to multiply it, and then the rate of instructions is
// the limit, not memory. So the products are of integers: a mask makes bytes of weights, and
// activations are cut into digits (digit_cutter.cuh). A group's sum, less the zeros' part, becomes
// a float and is multiplied by the scales.
#include "kernels/cuda/matmul/packed/digit_matmul.h"

#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/warp_tile.cuh"
#include "kernels/cuda/matmul/bands/band_product.cuh"
#include "kernels/cuda/matmul/bands/band_walk.cuh"
#include "kernels/cuda/matmul/packed/digit_cutter.cuh"
#include "kernels/cuda/matmul/packed/grouped_matmul.h"
#include "kernels/cuda/matmul/packed/packed_bands.cuh"

namespace quire::cuda {
namespace {

constexpr int kDigitWarps = 16;  // to cut the activations takes long
constexpr int kExchanged = 8;    // bands whose sums the warps exchange at a time
using Exchange = float[kDigitWarps][kExchanged][kDigitTokens][kBandRows];

// The first operand of 32 columns of a unit: bytes.
template <int kBits, typename Unit>
__device__ __forceinline__ void WeightBytes(const Unit& unit, int span, uint32_t (&bytes)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const auto& words = unit.words[j % 2];
    if constexpr (kBits == 4) {
      bytes[j] = words[span] & (j < 2 ? 0x0f0f0f0fu : 0xf0f0f0f0u);
    } else {
      bytes[j] = words[span * 2 + j / 2];
    }
  }
}

// Adds the products of a unit and a tile.
template <int kBits, int kGroups, typename Unit>
__device__ __forceinline__ void AddProducts(float (&sums)[2], int groups, const Unit& unit,
                                            const TileDigits& digits,
                                            const TileScale<kGroups>& scale) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    if (group >= groups) break;
    int32_t products[4] = {};
#pragma unroll
    for (int j = 0; j < kChunkSpans / kGroups; ++j) {
      const int span = group * (kChunkSpans / kGroups) + j;
      uint32_t bytes[4];
      WeightBytes<kBits>(unit, span, bytes);
      MultiplyAdd<uint8_t>(products, bytes, digits[span][0], digits[span][1]);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int32_t sum = products[j * 2] + 256 * products[j * 2 + 1] +
                          unit.zeros[group][j] * scale.minus_sum[group];
      sums[j] = fmaf(static_cast<float>(sum), unit.scales[group][j] * scale.scale, sums[j]);
    }
  }
}

template <typename T, int kBits, int kGroups>
struct DigitWork {
  // The usual formats leave room for small kernels; others take the registers that there are.
  static constexpr int kWarps = kDigitWarps, kRegisters = kGroups == 1 ? 72 : 96;
  static_assert(LeavesRoom(kWarps, kRegisters) == (kGroups == 1));
  // Each pass cuts the activations again; with more bands the compiler spills.
  static constexpr int kMaxBands = kBits == 8 && kGroups == 1 ? 5 : 8 - kGroups / 2;
  static_assert(kMaxBands <= kExchanged);
  using Ring = BandRing<kBits, kGroups, kWarps, 186 << 10>;
  struct Shared {
    Ring ring;
    alignas(16) uint32_t digits[kWarps][kTileWords];
    Exchange sums;
  };
  // Of a lane: rows r and r + 8 of a band, with two digits of a token.
  using Sums = float[kMaxBands][2];

  // Adds both digit pairs of each sum and the warps' sums of one pass, in the order of the warps,
  // stores them and begins new ones.
  __device__ static __forceinline__ void StoreSums(const BandProduct& p, Sums& sums,
                                                   const RowPass& pass, Exchange& exchange) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = lane % kBandRows, token = lane / kBandRows;
    SyncComputing<kWarps>();  // the sums of the last pass have been read
#pragma unroll
    for (int band = 0; band < kMaxBands; ++band) {
      if (band >= pass.bands) break;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float pair = sums[band][j];
        sums[band][j] = 0;
        const float sum = pair + __shfl_xor_sync(0xffffffffu, pair, 1);
        if (lane % 2 == 0) exchange[warp][band][lane % 4 / 2][lane / 4 + j * 8] = sum;
      }
    }
    SyncComputing<kWarps>();
    if (warp >= pass.bands || token >= p.tokens) return;
    float total = exchange[0][warp][token][row];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) total += exchange[i][warp][token][row];
    p.Store<T>(total, token, (pass.begin + warp) * kBandRows + row);
  }

  // A warp's part of a block's products. The activations of a chunk are loaded while those of the
  // chunk before are used.
  __device__ static __forceinline__ void Compute(const BandProduct& p, const RowShare& share,
                                                 Shared& shared) {
    const int warp = threadIdx.x / 32, k = p.w.k;
    const DigitCutter<T, kBits, kGroups> cutter(static_cast<const T*>(p.x), p.x_stride, p.tokens, k,
                                                shared.digits[warp]);
    BandReader<Ring> reader(shared.ring, p.w.zeros != nullptr);
    Sums sums = {};
    RawTile raw = cutter.Load(warp);
    TileScale<kGroups> scale;
    TileDigits digits;
    int groups = 0;  // of the chunk
    const auto begin = [&](int chunk, int next) {
      __syncwarp();  // the digits of the last chunk have been read
      scale.scale = cutter.Cut(raw);
      raw = cutter.Load(next);
      __syncwarp();
      cutter.Read(digits);
      cutter.Sum(digits, scale.minus_sum);
      groups = CeilDiv(k - chunk * kChunkColumns, kChunkColumns / kGroups);
    };
    const auto add = [&](int band, const auto& unit) {
      AddProducts<kBits, kGroups>(sums[band], groups, unit, digits, scale);
    };
    const auto end = [&](const RowPass& pass) { StoreSums(p, sums, pass, shared.sums); };
    WalkBands<kMaxBands>(share, CeilDiv(k, kChunkColumns), reader,
                         BandSteps{NoStart{}, begin, add, end});
  }
};

}  // namespace

void PrepareDigitMatMul() { PackedBands<DigitWork>::Prepare(); }

void DigitMatMul(const MatMulParams& p, const Device& device) {
  CHECK(FitsGroupedMatMul(p) && p.x.dim[0] <= kMaxDigitTokens);
  PackedBands<DigitWork>::Enqueue(p, device);
}

}  // namespace quire::cuda
