// BandKernel: a product of few tokens with packed weights, as a stream of the weights past their
// activations.
//
// Matrix units take 16 rows of w as their first operand (a band) and a tile of activations as their
// second. A block owns a run of bands and goes over them in passes of a few. Within a pass the
// columns are cut into chunks of 128, which the warps take in turn; each warp sums its own chunks
// in registers, and the warps' sums are added in the order of the warps.
//
// Two warps supply the weights (band_supplier.cuh). What the others compute is Work, a template of
// the type of activations, the bits of a weight and the groups of a chunk: its Shared has a
// BandRing `ring`, kMaxBands are those of a pass, and Compute(product, share, shared) takes every
// stage that the suppliers fill.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/check.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/warpgroup.cuh"
#include "kernels/cuda/device/weight_passes.cuh"
#include "kernels/cuda/matmul/packed/band_ring.cuh"
#include "kernels/cuda/matmul/packed/band_supplier.cuh"
#include "kernels/ops.h"

namespace quire::cuda {

inline constexpr int kComputeWarps = kStageChunks;
inline constexpr int kComputeThreads = kComputeWarps * 32;
// A warpgroup holds the suppliers, for the sake of its registers.
inline constexpr int kBandThreads = kComputeThreads + 128;
inline constexpr int kSupplierRegisters = 56, kComputeRegisters = 104;
static_assert(kSupplierRegisters * 128 + kComputeRegisters * kComputeThreads <=
              65536 / kBandThreads / 8 * 8 * kBandThreads);

struct BandProduct {
  const void* x;
  PackedBands w;
  const void* bias;  // null: none
  void* out;
  int tokens;
  int64_t x_stride, out_stride;

  template <typename T>
  __device__ __forceinline__ void Store(float total, int token, int row) const {
    if (bias != nullptr) total += ToFloat(static_cast<const T*>(bias)[row]);
    static_cast<T*>(out)[token * out_stride + row] = FromFloat<T>(total);
  }
};

// A barrier of the warps that compute.
__device__ __forceinline__ void SyncComputing() { SyncNamed(1, kComputeThreads); }

template <typename Work>
__global__ void __launch_bounds__(kBandThreads, 1)
    BandKernel(const __grid_constant__ BandProduct p) {
  using Shared = typename Work::Shared;
  // One block a multiprocessor, as of skinny/skinny_layout.cuh.
  static_assert(sizeof(Shared) > 113 << 10 && sizeof(Shared) <= 227 << 10);
  extern __shared__ __align__(256) char bytes[];
  auto& shared = *reinterpret_cast<Shared*>(bytes);
  PdlTrigger();
  if (threadIdx.x == 0) shared.ring.Init();
  __syncthreads();
  const RowShare share(p.w.bands, Work::kMaxBands);
  if (threadIdx.x >= kComputeThreads) {
    GiveRegisters<kSupplierRegisters>();
    if (threadIdx.x >= kComputeThreads + kSuppliers * 32) return;
    BandSupplier supplier(p.w, shared.ring, threadIdx.x / 32 - kComputeWarps);
    supplier.Run(share);
    PdlWait();
    return;
  }
  TakeRegisters<kComputeRegisters>();
  PdlWait();
  if (threadIdx.x == 0) shared.ring.predecessor.Set();
  Work::Compute(p, share, shared);
}

// The kernels of a Work.
template <template <typename, int, int> class Work>
class BandKernels {
 public:
  // Call once per process and device, outside a capture.
  static void Prepare() {
    for (DType x : {DType::kBF16, DType::kF16}) {
      for (DType w : {DType::kU4, DType::kU8}) {
        for (int groups = 1; groups <= kMostChunkGroups; groups *= 2) {
          const SizedKernel sized = For(x, w, groups);
          CUDA_CHECK(cudaFuncSetAttribute(sized.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(sized.shared_bytes)));
        }
      }
    }
  }

  // Enqueues a product that fits GroupedMatMul (grouped_matmul.h).
  static void Enqueue(const MatMulParams& p, const Device& device) {
    const int n = static_cast<int>(p.w.dim[0]), k = static_cast<int>(p.w.dim[1]);
    const int chunks = CeilDiv(k, kChunkColumns), group = p.w.scale_columns;
    const BandProduct product{
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
    const SizedKernel sized = For(p.x.dtype, p.w.dtype, groups);
    Launch(device,
           {.blocks = static_cast<unsigned>(std::min(device.num_sms, n / kBandRows)),
            .threads = kBandThreads,
            .shared_bytes = sized.shared_bytes},
           sized.kernel, product);
  }

 private:
  using Kernel = void (*)(BandProduct);
  struct SizedKernel {
    Kernel kernel;
    size_t shared_bytes;
  };

  template <typename T, int kBits, int kGroups>
  static SizedKernel For() {
    using Of = Work<T, kBits, kGroups>;
    return {BandKernel<Of>, sizeof(typename Of::Shared)};
  }
  template <typename T, int kBits>
  static SizedKernel For(int groups) {
    if (groups == 1) return For<T, kBits, 1>();
    if (groups == 2) return For<T, kBits, 2>();
    CHECK_EQ(groups, kMostChunkGroups);
    return For<T, kBits, kMostChunkGroups>();
  }
  static SizedKernel For(DType x, DType w, int groups) {
    return DispatchHalf(x, [&](auto tag) {
      using T = decltype(tag);
      return w == DType::kU4 ? For<T, 4>(groups) : For<T, 8>(groups);
    });
  }
};

}  // namespace quire::cuda
