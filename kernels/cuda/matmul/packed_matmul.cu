// out[t, r] = sum over groups of scale[r, group] * (sum over c of the group of x[t, c] * (w[r, c] -
// zero[r, group])) by the products of warpgroups: rows of w are their rows and tokens their
// columns.
//
// The tiles are those of tile_work.cuh, the columns of a chunk 128. One warp, the supplier, copies
// chunks of rows and tokens with their scales and zeros to a ring in shared memory. The other warps
// turn the integers of their rows into floats in registers, which products take as their first
// operand. Elements less their zeros are exact in the type of the matrix units, so the sum over a
// group's columns in a chunk is that of exact products; it is multiplied by the scale in float32.
//
// To widen an element costs more than to multiply it by a few tokens. So that its latency is
// hidden, four warpgroups take part where tokens are few: of each 64 rows one takes the even chunks
// and one the odd ones.
#include "kernels/cuda/matmul/packed_matmul.h"

#include <algorithm>
#include <type_traits>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/cluster.cuh"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/device/tensor_map.h"
#include "kernels/cuda/device/warpgroup.cuh"
#include "kernels/cuda/device/warpgroup_product.cuh"
#include "kernels/cuda/matmul/packed/grouped_matmul.h"
#include "kernels/cuda/matmul/packed/packed_weights.cuh"
#include "kernels/cuda/matmul/tile_supply.cuh"
#include "kernels/cuda/matmul/tile_work.cuh"
#include "kernels/cuda/matmul/tile_writer.cuh"
#include "kernels/packed_row.h"

namespace quire::cuda {
namespace {

constexpr int kChunk = kPackedChunk;
constexpr int kSteps = kChunk / 16;  // products of a chunk
// Runs of scales of a chunk: one, or four of 32 columns, which serve groups of 32 and of 64.
constexpr int kMaxRuns = 4;
constexpr int kPanels = kChunk / static_cast<int>(kPanelColumns);

// How threads and shared memory are divided.
template <int kBits, int kTokens>
struct Layout {
  // Warpgroups for each 64 rows, which take turns at chunks.
  static constexpr int kTurns = kTokens <= 32 ? 2 : 1;
  static constexpr int kConsumers = kTurns * kSumWarps * 32;
  // One more warpgroup holds the supplier, for the sake of its registers.
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kSupplierRegisters = kTurns == 2 ? 32 : 40;
  static constexpr int kConsumerRegisters = kTurns == 2 ? 112 : 232;
  static_assert(kSupplierRegisters * 128 + kConsumerRegisters * kConsumers <=
                kLaunchRegisters * kThreads);

  static constexpr int kRowBytes = kChunk * kBits / 8;
  static constexpr int kWeightBytes = kMaxRows * kRowBytes;
  static constexpr int kPanelBytes = kTokens * static_cast<int>(kPanelRowBytes);
  static constexpr int kStageBytes = kWeightBytes + kPanels * kPanelBytes;
  static constexpr int kScaleBytes = kMaxRuns * kMaxRows * 5;
  // A multiple of kTurns, so that a stage serves one turn throughout a tile: a warp may wait for a
  // barrier's phase only once the phase before is over, and of that it knows only where it waited
  // for it.
  static constexpr int kStages =
      std::min(16, (196 << 10) / (kStageBytes + kScaleBytes)) / kTurns * kTurns;
};
// Stages whose weights are copied while a predecessor runs: few, because its own loads would queue
// behind them.
constexpr int kEarlyStages = 4;

template <int kBits, int kTokens>
struct Shared {
  using L = Layout<kBits, kTokens>;

  alignas(1024) char ring[L::kStages][L::kStageBytes];  // rows of w, then panels of tokens
  alignas(16) float scales[L::kStages][kMaxRuns][kMaxRows];
  alignas(16) uint8_t zeros[L::kStages][kMaxRuns][kMaxRows];
  StagedSums staged;
  // Sums of the warps that take the odd chunks: [warp][eight tokens][lane].
  float4 odd[L::kTurns == 2 ? kSumWarps : 1][kTokens / 8][32];
  uint64_t full[L::kStages], empty[L::kStages];

  __device__ __forceinline__ Barrier Full(int stage) const { return {SharedAddress(&full[stage])}; }
  __device__ __forceinline__ Barrier Empty(int stage) const {
    return {SharedAddress(&empty[stage])};
  }
  // For the writer: where the ring lies.
  __device__ __forceinline__ float* Exchange() { return reinterpret_cast<float*>(ring); }
  static_assert(kTokens * kSumPitch * 4 <= L::kStages * L::kStageBytes);
};

struct Product {
  const float* scales;
  const uint8_t* zeros;  // null: the middle of the range
  const void* bias;      // null: none
  void* out;
  int64_t scale_stride, out_stride;
  int k;
  int group_chunks;  // that share a scale, if a chunk has one run of scales
  int group_runs;    // that share a scale, if a chunk has four
  Tiling tiling;
};

template <int kBits, int kRuns, int kTokens>
struct Supplier {
  using L = Layout<kBits, kTokens>;

  const Product& p;
  const Work<kTokens>& work;
  const CUtensorMap& w;
  const CUtensorMap& x;
  Shared<kBits, kTokens>& shared;
  Place<L::kStages> place = {};

  __device__ __forceinline__ void CopyWeights(const Place<L::kStages>& to, int tile,
                                              int chunk) const {
    const int row = work.Row(tile), rows = min(p.tiling.tile_rows, p.tiling.n - row);
    const int runs = min(kRuns, CeilDiv(p.k - chunk * kChunk, kChunk / kRuns));
    const int of_row = p.zeros == nullptr ? 4 : 5;  // bytes of scales and zeros
    const Barrier full = shared.Full(to.stage);
    full.ArriveExpecting(p.tiling.tile_rows * L::kRowBytes + kPanels * L::kPanelBytes +
                         runs * rows * of_row);
    CopyBox(SharedAddress(shared.ring[to.stage]), w, chunk * L::kRowBytes, row, full);
#pragma unroll 1
    for (int run = 0; run < runs; ++run) {
      const int group = kRuns == 1 ? chunk / p.group_chunks : (chunk * kRuns + run) / p.group_runs;
      const int64_t at = group * p.scale_stride + row;
      CopyBulk(shared.scales[to.stage][run], p.scales + at, rows * 4, full);
      if (p.zeros != nullptr) CopyBulk(shared.zeros[to.stage][run], p.zeros + at, rows, full);
    }
  }
  __device__ __forceinline__ void CopyTokens(const Place<L::kStages>& to, int tile,
                                             int chunk) const {
    const uint32_t at = SharedAddress(shared.ring[to.stage]) + L::kWeightBytes;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      CopyBox(at + panel * L::kPanelBytes, x,
              chunk * kChunk + panel * static_cast<int>(kPanelColumns), work.Token(tile),
              shared.Full(to.stage));
    }
  }
};

template <typename T, int kBits, int kRuns, int kTokens>
struct Consumer {
  using L = Layout<kBits, kTokens>;
  static constexpr int kRunSteps = kSteps / kRuns;

  const Product& p;
  const Work<kTokens>& work;
  Shared<kBits, kTokens>& shared;
  Place<L::kStages> place = {};
  const int warp = threadIdx.x / 32 % kSumWarps;  // of 16 rows
  const int turn = threadIdx.x / 32 / kSumWarps;
  const int lane = threadIdx.x % 32;

  // The words of this lane's two rows in vectors 4i to 4i + 3 of a chunk: [row, row + 8][vector].
  __device__ __forceinline__ void LoadWords(int i, uint32_t (&words)[2][4]) const {
    const int row = lane % 8, v = i * 4 + lane / 8;
    const int at = kBits == 4 ? v ^ (row / 2 % 4) : v ^ row;
    const uint32_t from =
        SharedAddress(shared.ring[place.stage]) + (warp * kWarpRows + row) * L::kRowBytes + at * 16;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      uint32_t(&to)[4] = words[j];
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(from + j * 8 * L::kRowBytes)
                   : "memory");
    }
  }
  __device__ __forceinline__ uint32_t ZeroOf(int run, int j) const {
    const int row = warp * kWarpRows + lane / 4 + j * 8;
    return ZeroWord<T, kBits>(p.zeros == nullptr ? 1u << (kBits - 1)
                                                 : uint32_t{shared.zeros[place.stage][run][row]});
  }
  // The fragments of a run's products.
  __device__ __forceinline__ void Widen(int run, uint32_t (&fragments)[kRunSteps][4]) const {
    constexpr int kPairs = 16 / kBits;      // of a word
    constexpr int kWordSteps = kPairs / 2;  // products that a word serves
    const uint32_t zeros[2] = {ZeroOf(run, 0), ZeroOf(run, 1)};
    uint32_t words[2][4];
#pragma unroll
    for (int i = 0; i < kRunSteps; ++i) {
      const int step = run * kRunSteps + i, vector = step / kWordSteps;
      if (i == 0 || (vector % 4 == 0 && step % kWordSteps == 0)) LoadWords(vector / 4, words);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        // Of row and row + 8, then of both eight columns further.
        const int pair = step % kWordSteps * 2 + j / 2;
        fragments[i][j] = WidenPair<T, kBits>(words[j % 2][vector % 4], pair, zeros[j % 2]);
      }
    }
  }

  // Adds a chunk.
  __device__ __forceinline__ void AddChunk(Sums<kTokens>& sums, int chunk) const {
    const int runs = min(kRuns, CeilDiv(p.k - chunk * kChunk, kChunk / kRuns));
    shared.Full(place.stage).Wait(place.phase);
    const TileOperand tokens(SharedAddress(shared.ring[place.stage]) + L::kWeightBytes);
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      if (run >= runs) break;
      uint32_t fragments[kRunSteps][4] = {};
      // The rows of a tile may be fewer than those of its products.
      if (warp * kWarpRows < p.tiling.tile_rows) Widen(run, fragments);
      const float* const scales = &shared.scales[place.stage][run][warp * kWarpRows + lane / 4];
      const float low = scales[0], high = scales[8];
      float part[kTokens / 8][4];
      ProductsFence();
#pragma unroll
      for (int i = 0; i < kRunSteps; ++i) {
        constexpr int kPanelSteps = static_cast<int>(kPanelColumns) / 16;
        const int step = run * kRunSteps + i;
        ProductOfRows<T>(part, fragments[i],
                         tokens.At(step / kPanelSteps * L::kPanelBytes + step % kPanelSteps * 32),
                         i > 0);
      }
      ProductsCommit();
      ProductsWait<0>();
      Settle(part);
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i) {
        sums[i][0] += low * part[i][0];
        sums[i][1] += low * part[i][1];
        sums[i][2] += high * part[i][2];
        sums[i][3] += high * part[i][3];
      }
    }
    shared.Empty(place.stage).ArriveIf(lane == 0);
  }

  // This warp's sums of a tile.
  __device__ __forceinline__ void SumTile(Sums<kTokens>& sums) {
#pragma unroll
    for (auto& block : sums) block[0] = block[1] = block[2] = block[3] = 0;
    for (int chunk = work.begin; chunk < work.end; ++chunk, place.Advance()) {
      if ((chunk - work.begin) % L::kTurns == turn) AddChunk(sums, chunk);
    }
    if constexpr (L::kTurns == 2) JoinTurns(sums);
  }
  // Adds the sums of the odd chunks to those of the even ones, in the warps of the even ones. Both
  // warpgroups of the same rows meet before they are read and before they are written again.
  __device__ __forceinline__ void JoinTurns(Sums<kTokens>& sums) const {
    const int barrier = 2 + warp / 4;
    float4(&of_warp)[kTokens / 8][32] = shared.odd[warp];
    if (turn == 1) {
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i) {
        of_warp[i][lane] = float4{sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
      }
    }
    SyncNamed(barrier, 256);
    if (turn == 0) {
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i) {
        const float4 odd = of_warp[i][lane];
        sums[i][0] += odd.x;
        sums[i][1] += odd.y;
        sums[i][2] += odd.z;
        sums[i][3] += odd.w;
      }
    }
    SyncNamed(barrier, 256);
  }
};

template <typename T, int kBits, int kRuns, int kTokens>
__global__ void __launch_bounds__(Layout<kBits, kTokens>::kThreads, 1)
    PackedKernel(const __grid_constant__ Product p, const __grid_constant__ CUtensorMap w,
                 const __grid_constant__ CUtensorMap x) {
  using L = Layout<kBits, kTokens>;
  extern __shared__ __align__(1024) char bytes[];
  auto& shared = *reinterpret_cast<Shared<kBits, kTokens>*>(bytes);
  PdlTrigger();
  if (threadIdx.x == 0) {
    for (int i = 0; i < L::kStages; ++i) {
      shared.Full(i).Init(1);
      shared.Empty(i).Init(kSumWarps);
    }
    FenceBarriers();
  }
  __syncthreads();
  const Tiling& tiling = p.tiling;
  const Cluster cluster;
  const Work<kTokens> work(tiling, static_cast<int>(cluster.rank()));
  if (threadIdx.x >= L::kConsumers) {
    GiveRegisters<L::kSupplierRegisters>();
    Supplier<kBits, kRuns, kTokens> supplier{p, work, w, x, shared};
    SupplyTiles<std::min(kEarlyStages, L::kStages)>(supplier, threadIdx.x == L::kConsumers,
                                                    cluster);
    return;
  }
  TakeRegisters<L::kConsumerRegisters>();
  PdlWait();
  Consumer<T, kBits, kRuns, kTokens> consumer{p, work, shared};
  const SumsWithBias<T> results{p.bias};
  const TileWriter<T, kTokens, SumsWithBias<T>> writer{
      work, results, static_cast<T*>(p.out), p.out_stride, shared.staged, shared.Exchange()};
  for (int tile = work.First(); tile < tiling.tiles; tile += work.Stride()) {
    Sums<kTokens> sums;
    consumer.SumTile(sums);
    if (consumer.turn == 0) {
      writer.Write(sums, tile, cluster);
    } else if (tiling.split > 1) {
      cluster.Sync();
      cluster.Sync();
    }
  }
}

using Kernel = void (*)(Product, CUtensorMap, CUtensorMap);
struct SizedKernel {
  Kernel kernel;
  unsigned threads;
  size_t shared_bytes;
};
template <typename T, int kBits, int kTokens>
SizedKernel KernelFor(bool one_run) {
  static_assert(sizeof(Shared<kBits, kTokens>) <= 227 * 1024);
  return {one_run ? PackedKernel<T, kBits, 1, kTokens> : PackedKernel<T, kBits, kMaxRuns, kTokens>,
          Layout<kBits, kTokens>::kThreads, sizeof(Shared<kBits, kTokens>)};
}
template <typename T, int kBits>
SizedKernel KernelFor(int tokens, bool one_run) {
  switch (tokens) {
    case 16: return KernelFor<T, kBits, 16>(one_run);
    case 32: return KernelFor<T, kBits, 32>(one_run);
    case 64: return KernelFor<T, kBits, 64>(one_run);
    default: CHECK_EQ(tokens, 128); return KernelFor<T, kBits, 128>(one_run);
  }
}
SizedKernel KernelFor(DType x, DType w, int tokens, bool one_run) {
  return DispatchHalf(x, [&](auto tag) {
    using T = decltype(tag);
    return w == DType::kU4 ? KernelFor<T, 4>(tokens, one_run) : KernelFor<T, 8>(tokens, one_run);
  });
}

// Whether a chunk has one run of scales.
bool HasOneRun(const TensorView& w) {
  return w.scale_columns == 0 || w.scale_columns % kChunk == 0;
}

CUtensorMap DescribeWeights(const TensorView& w, int rows) {
  const int64_t dims[] = {BytesOf(w.dtype, w.dim[1]), w.dim[0]};
  const int64_t strides[] = {BytesOf(w.dtype, w.row_stride)};
  const uint32_t box[] = {static_cast<uint32_t>(BytesOf(w.dtype, kChunk)),
                          static_cast<uint32_t>(rows)};
  return DescribeTensor(
      {.base = w.data, .dtype = DType::kU8, .dims = dims, .strides = strides, .box = box});
}
CUtensorMap DescribeTokens(const TensorView& x, int tokens) {
  const int64_t dims[] = {x.dim[1], x.dim[0]};
  const uint32_t box[] = {kPanelColumns, static_cast<uint32_t>(tokens)};
  return DescribeTensor(
      {.base = x.data, .dtype = x.dtype, .dims = dims, .strides = {&x.row_stride, 1}, .box = box});
}

}  // namespace

void PreparePackedMatMul() {
  for (DType x : {DType::kBF16, DType::kF16}) {
    for (DType w : {DType::kU4, DType::kU8}) {
      for (int tokens : kPackedTileTokens) {
        for (bool one_run : {false, true}) {
          const SizedKernel sized = KernelFor(x, w, tokens, one_run);
          CUDA_CHECK(cudaFuncSetAttribute(sized.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(sized.shared_bytes)));
        }
      }
    }
  }
}

void PackedMatMul(const MatMulParams& p, const TileCut& cut, const TileClusters& clusters,
                  const Device& device) {
  CHECK(FitsGroupedMatMul(p));
  const int k = static_cast<int>(p.w.dim[1]), chunks = CeilDiv(k, kChunk);
  const int group = p.w.scale_columns;
  const Product product{.scales = p.w.scales,
                        .zeros = p.w.zeros,
                        .bias = p.bias.data,
                        .out = p.out.data,
                        .scale_stride = p.w.scale_stride,
                        .out_stride = p.out.row_stride,
                        .k = k,
                        .group_chunks = group == 0 ? chunks : std::max(1, group / kChunk),
                        .group_runs = std::max(1, group * kMaxRuns / kChunk),
                        .tiling = Tiling(cut, p.x.dim[0], p.w.dim[0], chunks)};
  const SizedKernel sized = KernelFor(p.x.dtype, p.w.dtype, cut.tokens, HasOneRun(p.w));
  Launch(device,
         {.blocks = product.tiling.Blocks(clusters),
          .threads = sized.threads,
          .shared_bytes = sized.shared_bytes,
          .cluster = {static_cast<unsigned>(cut.split), 1, 1}},
         sized.kernel, product, DescribeWeights(p.w, cut.rows), DescribeTokens(p.x, cut.tokens));
}

}  // namespace quire::cuda
