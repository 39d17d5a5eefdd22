// out[t, r] = sum over groups of scale[r, group] * (sum over c of the group of x[t, c] * (w[r, c] -
// zero[r, group])), for one or two tokens: a stream of n * k weights of 4 or 8 bits past their
// activations, bound by one read of the weights.
//
// To widen a weight to a float costs more than to multiply it, and then the rate of instructions is
// the limit, not memory. So the products are of integers: a mask makes bytes of weights, and
// activations are cut into digits (digit_cutter.cuh). A group's sum, less the zeros' part, becomes
// a float and is multiplied by the scales.
//
// Matrix units take 16 rows of w as their first operand (a band) and a tile of digits as their
// second. A block owns a run of bands and goes over them in passes of a few. Within a pass the
// columns are cut into chunks of 128, which the warps take in turn; each warp sums its own chunks
// in registers, and the warps' sums are added in the order of the warps.
#include <algorithm>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/shared_memory.cuh"
#include "kernels/cuda/device/warp_tile.cuh"
#include "kernels/cuda/device/weight_passes.cuh"
#include "kernels/cuda/matmul/packed/band_ring.cuh"
#include "kernels/cuda/matmul/packed/band_supplier.cuh"
#include "kernels/cuda/matmul/packed/digit_cutter.cuh"
#include "kernels/cuda/matmul/packed/digit_matmul.h"
#include "kernels/cuda/matmul/packed/grouped_matmul.h"
#include "kernels/packed_row.h"

namespace quire::cuda {
namespace {

constexpr int kWarps = kStageChunks;  // that compute
constexpr int kThreads = kWarps * 32;
// Bands of a pass, each of which cuts the activations again. The scales of more groups leave fewer
// registers for them.
template <int kGroups>
constexpr int kMaxBands = 8 - kGroups / 2;

constexpr int kExchanged = 8;  // bands whose sums the warps exchange at a time
using Exchange = float[kWarps][kExchanged][kTileTokens][kBandRows];
template <int kBits, int kGroups>
struct Shared {
  using Ring = BandRing<kBits, kGroups>;

  Ring ring;
  alignas(16) uint32_t digits[kWarps][kTileWords];
  Exchange sums;

  // One block a multiprocessor, as of skinny/skinny_layout.cuh.
  static constexpr bool Fits() { return sizeof(Shared) > 113 << 10 && sizeof(Shared) <= 227 << 10; }
};

struct Product {
  const void* x;
  PackedBands w;
  const void* bias;  // null: none
  void* out;
  int tokens;
  int64_t x_stride, out_stride;
};

// Of a lane: rows r and r + 8 of a band, with two digits of a token.
template <int kBands>
using Sums = float[kBands][2];

// Adds the products of a unit and a tile.
template <int kGroups, typename Unit>
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
      MultiplyAdd<uint8_t>(products, unit.bytes[span], digits[span][0], digits[span][1]);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int32_t sum = products[j * 2] + 256 * products[j * 2 + 1] +
                          unit.zeros[group][j] * scale.minus_sum[group];
      sums[j] = fmaf(static_cast<float>(sum), unit.scales[group][j] * scale.scale, sums[j]);
    }
  }
}

__device__ __forceinline__ void SyncConsumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// Adds both digit pairs of each sum and the warps' sums of one pass, in the order of the warps, and
// stores them.
template <typename T, int kBands>
__device__ __forceinline__ void StoreSums(const Product& p, const Sums<kBands>& sums,
                                          const RowPass& pass, Exchange& exchange) {
  static_assert(kBands <= kExchanged);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = lane % kBandRows, token = lane / kBandRows;
  SyncConsumers();  // the sums of the last pass have been read
#pragma unroll
  for (int band = 0; band < kBands; ++band) {
    if (band >= pass.bands) break;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float pair = sums[band][j];
      const float sum = pair + __shfl_xor_sync(0xffffffffu, pair, 1);
      if (lane % 2 == 0) exchange[warp][band][lane % 4 / 2][lane / 4 + j * 8] = sum;
    }
  }
  SyncConsumers();
  if (warp >= pass.bands || token >= p.tokens) return;
  float total = exchange[0][warp][token][row];
#pragma unroll
  for (int i = 1; i < kWarps; ++i) total += exchange[i][warp][token][row];
  const int r = (pass.begin + warp) * kBandRows + row;
  if (p.bias != nullptr) total += ToFloat(static_cast<const T*>(p.bias)[r]);
  static_cast<T*>(p.out)[token * p.out_stride + r] = FromFloat<T>(total);
}

// A warp's part of a block's products. The activations of a chunk are loaded while those of the
// chunk before are used.
template <typename T, int kBits, int kGroups>
__device__ __forceinline__ void Compute(const Product& p, const RowShare& share,
                                        Shared<kBits, kGroups>& shared) {
  constexpr int kBands = kMaxBands<kGroups>;
  using Reader = BandReader<typename Shared<kBits, kGroups>::Ring>;
  const int warp = threadIdx.x / 32, k = p.w.k;
  const DigitCutter<T, kBits, kGroups> cutter(static_cast<const T*>(p.x), p.x_stride, p.tokens, k,
                                              shared.digits[warp]);
  Reader reader(shared.ring, p.w.zeros != nullptr);
  const int chunks = CeilDiv(k, kChunkColumns);
  RawTile raw = cutter.Load(warp);
  for (RowPass pass(share); pass.begin < share.end; pass.Advance(share)) {
    Sums<kBands> sums = {};
#pragma unroll 1
    for (int chunk = warp; chunk - warp < chunks; chunk += kWarps) {
      if (chunk >= chunks) {
        for (int band = 0; band < pass.bands; ++band) reader.Skip();
        continue;
      }
      TileScale<kGroups> scale;
      TileDigits digits;
      __syncwarp();  // the digits of the last chunk have been read
      scale.scale = cutter.Cut(raw);
      raw = cutter.Load(chunk + kWarps < chunks ? chunk + kWarps : warp);
      __syncwarp();
      cutter.Read(digits);
      cutter.Sum(digits, scale.minus_sum);
      const int groups = CeilDiv(k - chunk * kChunkColumns, kChunkColumns / kGroups);
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
        if (band >= pass.bands) break;
        typename Reader::Unit unit;
        reader.Take(unit);
        AddProducts<kGroups>(sums[band], groups, unit, digits, scale);
      }
    }
    StoreSums<T, kBands>(p, sums, pass, shared.sums);
  }
}

template <typename T, int kBits, int kGroups>
__global__ void __launch_bounds__(kThreads + kSuppliers * 32, 1)
    DigitKernel(const __grid_constant__ Product p) {
  extern __shared__ __align__(128) char bytes[];
  auto& shared = *reinterpret_cast<Shared<kBits, kGroups>*>(bytes);
  static_assert(Shared<kBits, kGroups>::Fits());
  PdlTrigger();
  if (threadIdx.x == 0) shared.ring.Init();
  __syncthreads();
  const RowShare share(p.w.bands, kMaxBands<kGroups>);
  if (threadIdx.x >= kThreads) {
    BandSupplier<typename Shared<kBits, kGroups>::Ring> supplier(p.w, shared.ring,
                                                                 threadIdx.x / 32 - kWarps);
    supplier.Run(share);
    PdlWait();
    return;
  }
  PdlWait();
  if (threadIdx.x == 0) shared.ring.predecessor_ended = 1;
  Compute<T, kBits, kGroups>(p, share, shared);
}

using Kernel = void (*)(Product);
struct SizedKernel {
  Kernel kernel;
  size_t shared_bytes;
};
template <typename T, int kBits, int kGroups>
SizedKernel KernelFor() {
  return {DigitKernel<T, kBits, kGroups>, sizeof(Shared<kBits, kGroups>)};
}
template <typename T, int kBits>
SizedKernel KernelFor(int groups) {
  if (groups == 1) return KernelFor<T, kBits, 1>();
  if (groups == 2) return KernelFor<T, kBits, 2>();
  CHECK_EQ(groups, kMostChunkGroups);
  return KernelFor<T, kBits, kMostChunkGroups>();
}
// groups: of a chunk.
SizedKernel KernelFor(DType x, DType w, int groups) {
  return DispatchHalf(x, [&](auto tag) {
    using T = decltype(tag);
    return w == DType::kU4 ? KernelFor<T, 4>(groups) : KernelFor<T, 8>(groups);
  });
}

}  // namespace

void PrepareDigitMatMul() {
  for (DType x : {DType::kBF16, DType::kF16}) {
    for (DType w : {DType::kU4, DType::kU8}) {
      for (int groups = 1; groups <= kMostChunkGroups; groups *= 2) {
        const SizedKernel sized = KernelFor(x, w, groups);
        CUDA_CHECK(cudaFuncSetAttribute(sized.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(sized.shared_bytes)));
      }
    }
  }
}

void DigitMatMul(const MatMulParams& p, const Device& device) {
  CHECK(FitsGroupedMatMul(p) && p.x.dim[0] <= kMaxDigitTokens);
  const int n = static_cast<int>(p.w.dim[0]), k = static_cast<int>(p.w.dim[1]);
  const int chunks = CeilDiv(k, kChunkColumns), group = p.w.scale_columns;
  const Product product{
      .x = p.x.data,
      .w = {.weights = p.w.ptr<uint8_t>(),
            .scales = p.w.scales,
            .zeros = p.w.zeros,
            .bands = n / kBandRows,
            .k = k,
            .group_chunks = group == 0 ? chunks : std::max(1, group / kChunkColumns),
            .row_bytes = BytesOf(p.w.dtype, p.w.row_stride),
            .scale_stride = p.w.scale_stride},
      .bias = p.bias.data,
      .out = p.out.data,
      .tokens = static_cast<int>(p.x.dim[0]),
      .x_stride = p.x.row_stride,
      .out_stride = p.out.row_stride};
  const int groups = group == 0 ? 1 : std::max(1, kChunkColumns / group);  // of a chunk
  const SizedKernel sized = KernelFor(p.x.dtype, p.w.dtype, groups);
  Launch(device,
         {.blocks = static_cast<unsigned>(std::min(device.num_sms, n / kBandRows)),
          .threads = kThreads + kSuppliers * 32,
          .shared_bytes = sized.shared_bytes},
         sized.kernel, product);
}

}  // namespace quire::cuda
