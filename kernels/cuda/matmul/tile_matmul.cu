// out[t, r] = sum over c of x[t, c] * w[r, c] by the products of warpgroups: rows of w are their
// rows and tokens their columns, so that few tokens waste no work.
//
// A block takes tiles of up to 128 rows and a run of tokens in turn. One warp of it, the supplier,
// copies chunks of 128 bytes of each row and token to a ring in shared memory; two warpgroups
// multiply 64 rows each. The supplier runs ahead into the next tile, and its first copies of
// weights need no result of a predecessor, so memory stays busy between tiles and between kernels.
//
// Products of 8-bit floats leave 13 bits of a sum's fraction in the matrix units. So each chunk of
// 128 columns is summed alone and added in float32; there it also takes the scales of blocks. Sums
// of 8-bit integers are exact, in whatever parts; they are handed on in the registers of floats, as
// bits.
#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/device/tensor_map.h"
#include "kernels/cuda/device/warpgroup.cuh"
#include "kernels/cuda/device/warpgroup_product.cuh"
#include "kernels/cuda/matmul/tile_matmul.h"
#include "kernels/cuda/matmul/tile_supply.cuh"
#include "kernels/cuda/matmul/tile_work.cuh"
#include "kernels/cuda/matmul/tile_writer.cuh"

namespace quire::cuda {
namespace {

// A third warpgroup holds the supplier, for the sake of its registers.
constexpr int kConsumers = kSumWarps * 32, kThreads = kConsumers + 128;
// Few tokens have few sums. Then a block leaves registers for one of 512 threads with 32 each, so
// that a small kernel's block fits beside it (bands/band_product.cuh); shared memory has room for
// one block of this kernel.
constexpr int kSmallTile = 64;
constexpr int BoundThreads(int tokens) { return tokens <= kSmallTile ? 512 : kThreads; }
struct Registers {
  int supplier, consumer;  // of a thread
};
// Scales of blocks need some more.
constexpr Registers RegistersOf(int tokens, bool block_scales) {
  if (tokens <= kSmallTile) return {40, 168};
  return block_scales ? Registers{24, 240} : Registers{40, 232};
}
constexpr bool RegistersFit(int tokens, bool block_scales) {
  const auto [supplier, consumer] = RegistersOf(tokens, block_scales);
  const int of_thread = 65536 / BoundThreads(tokens) / 8 * 8;
  return supplier * 128 + consumer * kConsumers <= of_thread * kThreads;
}
static_assert(RegistersFit(kSmallTile, false) && RegistersFit(2 * kSmallTile, false) &&
              RegistersFit(2 * kSmallTile, true));
constexpr int kChunkBytes = kPanelRowBytes;
// A chunk of a tile: its rows of w, then its tokens.
template <int kTokens>
constexpr int kStageBytes = (kMaxRows + kTokens) * kChunkBytes;
constexpr int kRingBytes = 213 << 10;
template <int kTokens>
constexpr int kStages = std::min(12, kRingBytes / kStageBytes<kTokens>);
// Stages whose weights are copied while a predecessor runs: not all, because its own loads would
// queue behind them.
template <int kTokens>
constexpr int kEarlyStages = std::min(6, kStages<kTokens> - 1);
// The scales of 8-bit blocks cover as many columns.
template <typename T>
constexpr int kChunk = kChunkBytes / static_cast<int>(sizeof(T));
constexpr int kScaleColumns = kChunk<__nv_fp8_e4m3>;

// The scales of a tile's tokens and rows, where each has one.
template <int kTokens>
struct Scales {
  float of_token[kTokens];
  alignas(16) float of_row[kMaxRows];
};

template <int kTokens>
struct Shared {
  alignas(1024) char ring[kStages<kTokens>][kStageBytes<kTokens>];
  StagedSums staged;
  alignas(16) float scales[kStages<kTokens>][kTokens];  // of 8-bit blocks
  Scales<kTokens> of_tile[2];                           // for one tile and the next
  uint64_t full[kStages<kTokens>], empty[kStages<kTokens>];

  __device__ __forceinline__ Barrier Full(int stage) const { return {SharedAddress(&full[stage])}; }
  __device__ __forceinline__ Barrier Empty(int stage) const {
    return {SharedAddress(&empty[stage])};
  }
  // For the writer: where the ring lies.
  __device__ __forceinline__ float* Exchange() { return reinterpret_cast<float*>(ring); }
  static_assert(kTokens * kSumPitch * 4 <= kStages<kTokens> * kStageBytes<kTokens>);
};

struct Product {
  const void* bias;       // null: none
  const float* x_scales;  // null: the elements are the values
  const float* w_scales;
  void* out;
  int64_t x_scale_stride, w_scale_stride, out_stride;
  int w_scale_rows;
  Tiling tiling;
};

template <typename T, int kTokens, bool kBlockScales>
struct Supplier {
  const Product& p;
  const Work<kTokens>& work;
  const CUtensorMap& w;
  const CUtensorMap& x;
  Shared<kTokens>& shared;
  Place<kStages<kTokens>> place = {};

  // Bytes of a tile's scales in a chunk.
  __device__ __forceinline__ uint32_t ScaleBytes(int tile) const {
    const int left = min(kTokens, work.p.tokens - work.Token(tile));
    return kBlockScales ? RoundUp(left, 4) * 4 : 0;
  }
  __device__ __forceinline__ void CopyWeights(const Place<kStages<kTokens>>& to, int tile,
                                              int chunk) const {
    const Barrier full = shared.Full(to.stage);
    full.ArriveExpecting((work.p.tile_rows + kTokens) * kChunkBytes + ScaleBytes(tile));
    CopyBox(SharedAddress(shared.ring[to.stage]), w, chunk * kChunk<T>, work.Row(tile), full);
  }
  __device__ __forceinline__ void CopyTokens(const Place<kStages<kTokens>>& to, int tile,
                                             int chunk) const {
    const Barrier full = shared.Full(to.stage);
    CopyBox(SharedAddress(shared.ring[to.stage]) + kMaxRows * kChunkBytes, x, chunk * kChunk<T>,
            work.Token(tile), full);
    if constexpr (kBlockScales) {
      CopyBulk(shared.scales[to.stage], p.x_scales + chunk * p.x_scale_stride + work.Token(tile),
               ScaleBytes(tile), full);
    }
  }
};

// The scales of a chunk for this lane's two rows.
struct RowScales {
  float low = 0, high = 0;

  RowScales() = default;
  __device__ __forceinline__ RowScales(const Product& p, int chunk, int row) {
    const float* const at = p.w_scales + chunk * p.w_scale_stride;
    low = at[min(row, p.tiling.n - 1) / p.w_scale_rows];
    high = at[min(row + 8, p.tiling.n - 1) / p.w_scale_rows];
  }
};

template <typename T, int kTokens, bool kBlockScales>
struct Consumer {
  const Product& p;
  const Work<kTokens>& work;
  Shared<kTokens>& shared;
  Place<kStages<kTokens>> place = {};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / 4;

  __device__ __forceinline__ int LaneRow(int tile) const {
    return work.Row(tile) + warp * kWarpRows + lane / 4;
  }

  __device__ __forceinline__ void Release(int stage) const {
    shared.Empty(stage).ArriveIf(lane == 0);
  }

  // Enqueues the products of the chunk at this place.
  template <typename Sum, int kBlocks>
  __device__ __forceinline__ void Multiply(Sum (&c)[kBlocks][4], int first_token,
                                           bool accumulate) const {
    const uint32_t at = SharedAddress(shared.ring[place.stage]);
    const TileOperand rows(at + group * kGroupRows * kChunkBytes);
    const TileOperand tokens(at + (kMaxRows + first_token) * kChunkBytes);
#pragma unroll
    for (int i = 0; i < kChunkBytes / 32; ++i) {
      ProductOfTiles<T>(c, rows.At(i * 32), tokens.At(i * 32), accumulate || i > 0);
    }
  }

  // Adds a chunk of 8-bit floats, 128 tokens at a time: with fewer the rows are read from shared
  // memory so often that products wait for them.
  __device__ __forceinline__ void AddChunk(Sums<kTokens>& sums, const RowScales& scales) const {
    constexpr int kPart = std::min(kTokens, 128);
    shared.Full(place.stage).Wait(place.phase);
#pragma unroll
    for (int first = 0; first < kTokens; first += kPart) {
      float part[kPart / 8][4];
      ProductsFence();
      Multiply(part, first, false);
      ProductsCommit();
      ProductsWait<0>();
      Settle(part);
      AddPart(sums, part, first, scales);
    }
    Release(place.stage);
  }
  template <int kBlocks>
  __device__ __forceinline__ void AddPart(Sums<kTokens>& sums, const float (&part)[kBlocks][4],
                                          int first, const RowScales& scales) const {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      float(&to)[4] = sums[first / 8 + i];
      if constexpr (kBlockScales) {
        const float* const x = &shared.scales[place.stage][first + i * 8 + lane % 4 * 2];
        const float2 of_token = *reinterpret_cast<const float2*>(x);
        to[0] += part[i][0] * (of_token.x * scales.low);
        to[1] += part[i][1] * (of_token.y * scales.low);
        to[2] += part[i][2] * (of_token.x * scales.high);
        to[3] += part[i][3] * (of_token.y * scales.high);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) to[j] += part[i][j];
      }
    }
  }

  __device__ __forceinline__ void SumInParts(Sums<kTokens>& sums, int tile) {
#pragma unroll
    for (auto& block : sums) block[0] = block[1] = block[2] = block[3] = 0;
    // Scales are read while the chunk before theirs is multiplied.
    RowScales scales = ScalesOf(work.begin, tile);
    for (int chunk = work.begin; chunk < work.end; ++chunk, place.Advance()) {
      const RowScales next = ScalesOf(min(chunk + 1, work.end - 1), tile);
      AddChunk(sums, scales);
      scales = next;
    }
  }
  __device__ __forceinline__ RowScales ScalesOf(int chunk, int tile) const {
    if constexpr (!kBlockScales) return {};
    return RowScales(p, chunk, LaneRow(tile));
  }
  template <typename Sum>
  __device__ __forceinline__ void SumAtOnce(Sum (&sums)[kTokens / 8][4]) {
    int last = 0;
    for (int chunk = work.begin; chunk < work.end; ++chunk, place.Advance()) {
      shared.Full(place.stage).Wait(place.phase);
      ProductsFence();
      Multiply(sums, 0, chunk > work.begin);
      ProductsCommit();
      ProductsWait<1>();
      if (chunk > work.begin) Release(last);
      last = place.stage;
    }
    ProductsWait<0>();
    Settle(sums);
    Release(last);
  }
  __device__ __forceinline__ void SumTile(Sums<kTokens>& sums, int tile) {
    if constexpr (std::is_same_v<T, __nv_fp8_e4m3>) {
      SumInParts(sums, tile);
    } else if constexpr (std::is_same_v<T, int8_t>) {
      int32_t exact[kTokens / 8][4];
      SumAtOnce(exact);
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = __int_as_float(exact[i][j]);
      }
    } else {
      SumAtOnce(sums);
    }
  }
};

// The scales of tiles. They are asked for when a tile begins, so that no result waits for them.
template <int kTokens>
struct TileScales {
  const Product& p;
  const Work<kTokens>& work;
  Shared<kTokens>& shared;
  int turn = 0;

  // For the next tile. By all consumers.
  __device__ __forceinline__ void Ask(int tile) {
    static_assert(kTokens <= kConsumers && kMaxRows <= kConsumers);
    turn ^= 1;
    Scales<kTokens>& to = shared.of_tile[turn];
    const int i = threadIdx.x, token = work.Token(tile) + i, row = work.Row(tile) + i;
    if (i < kTokens && token < p.tiling.tokens) {
      CopyFloat(SharedAddress(&to.of_token[i]), p.x_scales + token);
    }
    if (i < kMaxRows && row < p.tiling.n) {
      CopyFloat(SharedAddress(&to.of_row[i]), p.w_scales + row);
    }
  }
  // Those asked for last. By all consumers: behind this barrier all have written the tile before
  // and read its scales, so that the next Ask may take their place.
  __device__ __forceinline__ const Scales<kTokens>& Await() const {
    CopyWait<0>();
    SyncNamed(kSumBarrier, kConsumers);
    return shared.of_tile[turn];
  }
};

// Results of sums whose rows and tokens have scales (TileWriter). A sum of integers is an integer
// whose bits a float holds.
template <typename T, int kTokens, bool kIntegers>
struct ScaledSums {
  const Scales<kTokens>& scales;
  const SumsWithBias<T> unscaled;
  const int first_row;  // of the tile

  __device__ __forceinline__ static float Add(float a, float b) {
    return kIntegers ? __int_as_float(__float_as_int(a) + __float_as_int(b)) : a + b;
  }

  struct OfRows {
    const Scales<kTokens>& scales;
    typename SumsWithBias<T>::OfRows unscaled;
    float of_row[4];

    __device__ __forceinline__ float operator()(float sum, int token, int i) const {
      const float scale = scales.of_token[token] * of_row[i];
      if constexpr (!kIntegers) return unscaled(sum * scale, token, i);
      // Rounded before the bias is added, as in SkinnyMatMul and on the CPU.
      return unscaled(__fmul_rn(static_cast<float>(__float_as_int(sum)), scale), token, i);
    }
  };
  __device__ __forceinline__ OfRows ForRows(int row, int end) const {
    const auto& of_row = *reinterpret_cast<const float4*>(&scales.of_row[row - first_row]);
    return {scales, unscaled.ForRows(row, end), {of_row.x, of_row.y, of_row.z, of_row.w}};
  }
};

template <typename T, typename Out, int kTokens, bool kBlockScales>
__global__ void __launch_bounds__(BoundThreads(kTokens), 1)
    TileKernel(const __grid_constant__ Product p, const __grid_constant__ CUtensorMap w,
               const __grid_constant__ CUtensorMap x) {
  extern __shared__ __align__(1024) char bytes[];
  auto& shared = *reinterpret_cast<Shared<kTokens>*>(bytes);
  PdlTrigger();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages<kTokens>; ++i) {
      shared.Full(i).Init(1);
      shared.Empty(i).Init(kSumWarps);
    }
    FenceBarriers();
  }
  __syncthreads();
  const Cluster cluster;
  const Tiling& tiling = p.tiling;
  const Work<kTokens> work(tiling, static_cast<int>(cluster.rank()));
  if (threadIdx.x >= kConsumers) {
    GiveRegisters<RegistersOf(kTokens, kBlockScales).supplier>();
    Supplier<T, kTokens, kBlockScales> supplier{p, work, w, x, shared};
    SupplyTiles<kEarlyStages<kTokens>>(supplier, threadIdx.x == kConsumers, cluster);
    return;
  }
  TakeRegisters<RegistersOf(kTokens, kBlockScales).consumer>();
  PdlWait();
  Consumer<T, kTokens, kBlockScales> consumer{p, work, shared};
  TileScales<kTokens> scales{p, work, shared};
  for (int tile = work.First(); tile < tiling.tiles; tile += work.Stride()) {
    constexpr bool kScaled = sizeof(T) == 1 && !kBlockScales;
    Sums<kTokens> sums;
    if constexpr (kScaled) scales.Ask(tile);
    consumer.SumTile(sums, tile);
    const auto write = [&](const auto& results) {
      const TileWriter<Out, kTokens, std::decay_t<decltype(results)>> writer{
          work, results, static_cast<Out*>(p.out), p.out_stride, shared.staged, shared.Exchange()};
      writer.Write(sums, tile, cluster);
    };
    const SumsWithBias<Out> unscaled{p.bias};
    if constexpr (kScaled) {
      constexpr bool kIntegers = std::is_same_v<T, int8_t>;
      write(ScaledSums<Out, kTokens, kIntegers>{scales.Await(), unscaled, work.Row(tile)});
    } else {
      write(unscaled);
    }
  }
}

using Kernel = void (*)(Product, CUtensorMap, CUtensorMap);

template <typename T, typename Out, bool kBlockScales>
Kernel KernelFor(int tokens) {
  switch (tokens) {
    case 32: return TileKernel<T, Out, 32, kBlockScales>;
    case 64: return TileKernel<T, Out, 64, kBlockScales>;
    case 128: return TileKernel<T, Out, 128, kBlockScales>;
    default: CHECK_EQ(tokens, 256); return TileKernel<T, Out, 256, kBlockScales>;
  }
}
template <int kTokens>
constexpr size_t kSharedBytes = [] {
  static_assert(sizeof(Shared<kTokens>) <= 227 * 1024);
  return sizeof(Shared<kTokens>);
}();
size_t SharedBytes(int tokens) {
  switch (tokens) {
    case 32: return kSharedBytes<32>;
    case 64: return kSharedBytes<64>;
    case 128: return kSharedBytes<128>;
    default: return kSharedBytes<256>;
  }
}
template <typename T, typename Out>
Kernel KernelFor(int tokens, bool block_scales) {
  if constexpr (std::is_same_v<T, __nv_fp8_e4m3>) {
    if (block_scales) return KernelFor<T, Out, true>(tokens);
  }
  return KernelFor<T, Out, false>(tokens);
}
Kernel KernelFor(DType in, DType out, int tokens, bool block_scales) {
  return DispatchDevice(out, [&](auto out_tag) -> Kernel {
    using Out = decltype(out_tag);
    if (in == DType::kE4M3) return KernelFor<__nv_fp8_e4m3, Out>(tokens, block_scales);
    if (in == DType::kI8) return KernelFor<int8_t, Out>(tokens, false);
    return DispatchHalf(in, [&](auto tag) -> Kernel {
      using T = decltype(tag);
      if constexpr (std::is_same_v<Out, T> || std::is_same_v<Out, float>) {
        return KernelFor<T, Out>(tokens, false);
      } else {
        CHECK(false);
        return nullptr;
      }
    });
  });
}

CUtensorMap Describe(const TensorView& matrix, int rows) {
  const int64_t dims[] = {matrix.dim[1], matrix.dim[0]};
  const uint32_t box[] = {kChunkBytes / static_cast<uint32_t>(SizeOf(matrix.dtype)),
                          static_cast<uint32_t>(rows)};
  return DescribeTensor({.base = matrix.data,
                         .dtype = matrix.dtype,
                         .dims = dims,
                         .strides = {&matrix.row_stride, 1},
                         .box = box});
}

bool CanCopy(const TensorView& matrix) {
  return reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 &&
         matrix.row_stride * static_cast<int64_t>(SizeOf(matrix.dtype)) % 16 == 0;
}

bool CanCopyScales(const TensorView& x) {
  return reinterpret_cast<uintptr_t>(x.scales) % 16 == 0 && x.scale_stride % 4 == 0;
}

void AllowSharedMemory() {
  for (DType in : {DType::kE4M3, DType::kI8, DType::kBF16, DType::kF16}) {
    for (DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
      if (!IsEightBit(in) && out != in && out != DType::kF32) continue;
      for (int tokens : kTileTokens) {
        for (bool block_scales : {false, true}) {
          CUDA_CHECK(cudaFuncSetAttribute(KernelFor(in, out, tokens, block_scales),
                                          cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(SharedBytes(tokens))));
        }
      }
    }
  }
}

TileClusters CountClusters(const Device& device) {
  TileClusters clusters{};
  clusters[1] = device.num_sms;
  for (int size = 2; size <= kMaxTileSplit; ++size) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = static_cast<unsigned>(size);
    config.blockDim = kThreads;
    config.dynamicSmemBytes = SharedBytes(64);
    config.attrs = &attribute;
    config.numAttrs = 1;
    CUDA_CHECK(cudaOccupancyMaxActiveClusters(
        &clusters[size], KernelFor(DType::kBF16, DType::kBF16, 64, false), &config));
  }
  return clusters;
}

}  // namespace

TileClusters PrepareTileMatMul(const Device& device) {
  AllowSharedMemory();  // without which no cluster has room
  return CountClusters(device);
}

bool FitsTileMatMul(const MatMulParams& p) {
  constexpr int64_t kMaxDim = int64_t{1} << 30;
  if (p.x.scale_columns > 0 && (!CanCopyScales(p.x) || p.w.scales == nullptr)) return false;
  if (p.w.dtype == DType::kI8 && (p.w.scale_columns > 0 || p.w.dim[1] > kMaxIntegerColumns)) {
    return false;
  }
  return CanCopy(p.x) && CanCopy(p.w) && p.w.dim[0] < kMaxDim && p.w.dim[1] < kMaxDim &&
         p.x.scale_rows == 1 && p.x.scale_columns == p.w.scale_columns &&
         (p.w.scale_columns == 0 ? p.w.scale_rows == 1 : p.w.scale_columns == kScaleColumns);
}

void TileMatMul(const MatMulParams& p, const TileCut& cut, const TileClusters& clusters,
                const Device& device) {
  CHECK(FitsTileMatMul(p));
  const auto chunk = static_cast<int64_t>(kChunkBytes / SizeOf(p.w.dtype));
  const Product product{.bias = p.bias.data,
                        .x_scales = p.x.scales,
                        .w_scales = p.w.scales,
                        .out = p.out.data,
                        .x_scale_stride = p.x.scale_stride,
                        .w_scale_stride = p.w.scale_stride,
                        .out_stride = p.out.row_stride,
                        .w_scale_rows = p.w.scale_rows,
                        .tiling = Tiling(cut, p.x.dim[0], p.w.dim[0], CeilDiv(p.w.dim[1], chunk))};
  Launch(device,
         {.blocks = product.tiling.Blocks(clusters),
          .threads = kThreads,
          .shared_bytes = SharedBytes(cut.tokens),
          .cluster = {static_cast<unsigned>(cut.split), 1, 1}},
         KernelFor(p.x.dtype, p.out.dtype, cut.tokens, p.w.scale_columns > 0), product,
         Describe(p.w, cut.rows), Describe(p.x, cut.tokens));
}

}  // namespace quire::cuda
