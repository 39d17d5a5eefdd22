// out[t, r] = sum over c of x[t, c] * w[r, c], for at most 16 tokens: a stream of n * k weights
// past a few activations (bands/band_product.cuh), bound by one read of the weights.
//
// The operands of the matrix units may have any columns if both agree, so a lane takes those that
// lie in its words. 8-bit floats are widened to 16 bits in registers, exactly: the matrix units
// have no 8-bit products of this shape.
//
// A chunk of 8-bit elements is a block of columns with scales of its own, where there are such
// blocks: a warp multiplies each chunk's sums by the chunk's scales before it adds them to its own.
#include "kernels/cuda/matmul/skinny_matmul.h"

#include <cuda_fp8.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/warp_tile.cuh"
#include "kernels/cuda/matmul/bands/activation_ring.cuh"
#include "kernels/cuda/matmul/bands/band_product.cuh"
#include "kernels/cuda/matmul/bands/band_walk.cuh"
#include "kernels/cuda/matmul/bands/tile_sums.cuh"
#include "kernels/device_limits.h"
#include "kernels/row_scale.h"

namespace quire::cuda {
namespace {

static_assert(kMaxSkinnyTokens == 2 * kMatrixTokens);
static_assert(ChunkColumns(8) == kScaleRun && kCudaLimits.eight_bit_multiple == 16);

// The elements of a product, and whether each chunk of their columns has scales.
template <typename T, bool kChunksHaveScales = false>
struct Form {
  using Element = T;
  using Sum = std::conditional_t<std::is_same_v<T, int8_t>, int32_t, float>;
  static constexpr bool kBlocks = kChunksHaveScales, kEightBit = sizeof(T) == 1;
  static constexpr bool kWidens = std::is_same_v<T, __nv_fp8_e4m3>;
  using Factor = std::conditional_t<kWidens, __half, T>;
  static constexpr int kWords = kWidens ? 1 : 2;  // of a row or a token in one product
};

// The scales of a chunk for this lane's two tokens of each tile. They are loaded when the chunk
// begins: its first weights hide their latency.
template <int kTiles>
__device__ __forceinline__ void LoadScales(const BandProduct& p, int chunk,
                                           float (&scales)[kTiles][2]) {
  const float* const of_chunk = p.x_scales + chunk * p.x_scale_stride;
#pragma unroll
  for (int i = 0; i < kTiles * 2; ++i) {
    const int token = i / 2 * kMatrixTokens + static_cast<int>(threadIdx.x % 4) * 2 + i % 2;
    scales[i / 2][i % 2] = token < p.tokens ? of_chunk[token] : 0.0f;
  }
}

template <typename F, typename Out, int kTiles>
struct SkinnyWork {
  using Sum = typename F::Sum;
  static constexpr int kWarps = 8, kRegisters = 128;
  static_assert(LeavesRoom(kWarps, kRegisters));
  // Each pass reads the activations again; more bands take more registers than there are.
  static constexpr int kMaxBands = kTiles == 1 ? 8 : 4;
  static constexpr int kRingBytes = (kTiles == 1 ? 190 : 172) << 10;
  using Ring = BandRing<F::kEightBit ? 8 : 16, F::kBlocks, kWarps, kRingBytes>;
  using Activations = ActivationRing<typename F::Element, Ring::kColumns, kTiles>;
  struct Shared {
    Ring ring;
    alignas(256) typename Activations::Slots activations[kWarps];
    TileExchange<Sum, kWarps> sums;
  };

  // The operands of a product: of two rows' words, and of a token's.
  __device__ static __forceinline__ void RowsOf(const uint32_t* low, const uint32_t* high,
                                                uint32_t (&w)[4]) {
    w[0] = F::kWidens ? WidenLow(low[0]) : low[0];
    w[1] = F::kWidens ? WidenLow(high[0]) : high[0];
    w[2] = F::kWidens ? WidenHigh(low[0]) : low[1];
    w[3] = F::kWidens ? WidenHigh(high[0]) : high[1];
  }
  __device__ static __forceinline__ void TokensOf(const uint32_t* words, uint32_t (&x)[2]) {
    x[0] = F::kWidens ? WidenLow(words[0]) : words[0];
    x[1] = F::kWidens ? WidenHigh(words[0]) : words[1];
  }

  // Adds the products of a unit and the tiles.
  template <typename Unit>
  __device__ static __forceinline__ void AddProducts(Sum (&sums)[kTiles][4], const Unit& unit,
                                                     const Activations& activations,
                                                     const float (&x_scales)[kTiles][2]) {
    Sum partial[kTiles][2][4] = {};  // two sums, so that no product waits for the one before it
#pragma unroll
    for (int quad = 0; quad < Activations::kQuads; ++quad) {
      uint32_t words[kTiles][4];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) activations.Get(tile, quad, words[tile]);
#pragma unroll
      for (int i = 0; i < 4; i += F::kWords) {
        uint32_t w[4];
        RowsOf(&unit.words[0][quad * 4 + i], &unit.words[1][quad * 4 + i], w);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          uint32_t x[2];
          TokensOf(&words[tile][i], x);
          MultiplyAdd<typename F::Factor>(partial[tile][i / F::kWords % 2], w, x[0], x[1]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles * 4; ++i) {
      const int tile = i / 4, j = i % 4;
      const Sum sum = partial[tile][0][j] + partial[tile][1][j];
      if constexpr (F::kBlocks) {
        const float scale = unit.scales[0][j / 2] * x_scales[tile][j % 2];
        sums[tile][j] = fmaf(sum, scale, sums[tile][j]);
      } else {
        sums[tile][j] += sum;
      }
    }
  }

  // The scales of what a thread stores, asked for when a pass begins: a load beside the store would
  // delay the end of the block.
  static constexpr bool kScalesResults = F::kEightBit && !F::kBlocks;
  struct ResultScales {
    const StoredPlace<kTiles> place;
    float of_token = 0, of_row[StoreSteps<kMaxBands, kTiles>()];

    __device__ __forceinline__ explicit ResultScales(const BandProduct& p) {
      if constexpr (kScalesResults) {
        if (place.Token() < p.tokens) of_token = p.x_scales[place.Token()];
      }
    }
    __device__ __forceinline__ void Ask(const BandProduct& p, const RowPass& pass) {
      if constexpr (kScalesResults) {
#pragma unroll
        for (int step = 0; step < StoreSteps<kMaxBands, kTiles>(); ++step) {
          const int row = place.Row(step, pass);
          of_row[step] = place.Stores(step, pass, p.tokens) && row < p.w.rows ? p.w.scales[row] : 0;
        }
      }
    }
  };

  // A warp's part of a block's products.
  __device__ static __forceinline__ void Compute(const BandProduct& p, const RowShare& share,
                                                 Shared& shared) {
    const int warp = threadIdx.x / 32;
    BandReader<Ring> reader(shared.ring, false);
    Activations activations(p, shared.activations[warp], warp);
    TileSums<Sum, kMaxBands, kTiles> sums = {};
    ResultScales scales(p);
    float x_scales[kTiles][2];
    const auto start = [&](const RowPass& pass) { scales.Ask(p, pass); };
    const auto begin = [&](int chunk, int next) {
      if constexpr (F::kBlocks) LoadScales(p, chunk, x_scales);
      activations.Take(chunk, next);
    };
    const auto add = [&](int band, const auto& unit) {
      AddProducts(sums[band], unit, activations, x_scales);
    };
    const auto end = [&](const RowPass& pass) {
      StoreTiles<kWarps>(sums, pass, p.tokens, shared.sums,
                         [&](Sum sum, int step, int token, int row) {
                           if (row >= p.w.rows) return;
                           auto total = static_cast<float>(sum);
                           if constexpr (kScalesResults)
                             total *= scales.of_token * scales.of_row[step];
                           p.Store<Out>(total, token, row);
                         });
    };
    WalkBands<kMaxBands>(share, CeilDiv(p.w.k, Ring::kColumns), reader,
                         BandSteps{start, begin, add, end});
    activations.End();
  }
};

template <typename F, typename Out>
SizedBandKernel KernelOf(int64_t tokens) {
  return tokens <= kMatrixTokens ? BandKernelOf<SkinnyWork<F, Out, 1>>()
                                 : BandKernelOf<SkinnyWork<F, Out, 2>>();
}
// Scaled elements have results of every type.
template <typename F>
SizedBandKernel ScaledKernelOf(DType out, int64_t tokens) {
  return DispatchDevice(out, [&](auto tag) { return KernelOf<F, decltype(tag)>(tokens); });
}
SizedBandKernel KernelFor(DType x, DType out, bool blocks, int64_t tokens) {
  if (x == DType::kI8) return ScaledKernelOf<Form<int8_t>>(out, tokens);
  if (x == DType::kE4M3) {
    return blocks ? ScaledKernelOf<Form<__nv_fp8_e4m3, true>>(out, tokens)
                  : ScaledKernelOf<Form<__nv_fp8_e4m3>>(out, tokens);
  }
  return DispatchHalf(x, [&](auto tag) {
    using T = decltype(tag);
    CHECK(out == x || out == DType::kF32);
    return out == x ? KernelOf<Form<T>, T>(tokens) : KernelOf<Form<T>, float>(tokens);
  });
}

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

void PrepareSkinnyMatMul() {
  for (DType x : {DType::kBF16, DType::kF16, DType::kE4M3, DType::kI8}) {
    for (DType out : {DType::kBF16, DType::kF16, DType::kF32}) {
      if (!IsEightBit(x) && out != x && out != DType::kF32) continue;
      for (bool blocks : {false, true}) {
        if (blocks && x != DType::kE4M3) continue;
        for (int64_t tokens : {1, kMaxSkinnyTokens}) {
          PrepareBandKernel(KernelFor(x, out, blocks, tokens));
        }
      }
    }
  }
}

bool FitsSkinnyMatMul(const MatMulParams& p) {
  constexpr int64_t kMaxDim = int64_t{1} << 30;
  const int64_t vector = 16 / static_cast<int64_t>(SizeOf(p.w.dtype));
  return p.w.dim[1] % vector == 0 && p.w.row_stride % vector == 0 && p.x.row_stride % vector == 0 &&
         Aligned(p.x.data) && Aligned(p.w.data) && p.w.dim[0] < kMaxDim && p.w.dim[1] < kMaxDim;
}

void SkinnyMatMul(const MatMulParams& p, const Device& device) {
  CHECK(FitsSkinnyMatMul(p));
  CHECK(p.x.dim[0] >= 1 && p.x.dim[0] <= kMaxSkinnyTokens);
  const bool blocks = p.w.scale_columns != 0;
  CHECK(p.x.dtype != DType::kI8 || (!blocks && p.w.dim[1] <= kMaxIntegerColumns));
  CHECK(!blocks || (p.w.scale_columns == kScaleRun && p.x.scale_columns == kScaleRun));
  CHECK(std::has_single_bit(static_cast<uint32_t>(p.w.scale_rows)));
  CHECK(p.x.scale_rows == 1 && (blocks || p.w.scale_rows == 1));
  const BandProduct product{
      .x = p.x.data,
      .x_scales = p.x.scales,
      .w = {.weights = static_cast<const uint8_t*>(p.w.data),
            .scales = p.w.scales,
            .zeros = nullptr,
            .rows = static_cast<int>(p.w.dim[0]),
            .k = static_cast<int>(p.w.dim[1]),
            .group_chunks = 1,
            .scale_shift = std::countr_zero(static_cast<uint32_t>(p.w.scale_rows)),
            .wide_scales = false,
            .row_bytes = BytesOf(p.w.dtype, p.w.row_stride),
            .scale_stride = p.w.scale_stride},
      .bias = p.bias.data,
      .out = p.out.data,
      .tokens = static_cast<int>(p.x.dim[0]),
      .x_stride = p.x.row_stride,
      .x_scale_stride = p.x.scale_stride,
      .out_stride = p.out.row_stride};
  LaunchBands(KernelFor(p.x.dtype, p.out.dtype, blocks, p.x.dim[0]), product, device);
}

}  // namespace quire::cuda
