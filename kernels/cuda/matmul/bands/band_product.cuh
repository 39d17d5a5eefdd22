// BandKernel: a product of few tokens as a stream of weights past their activations.
//
// Matrix units take 16 rows of w as their first operand (a band) and a tile of activations as their
// second. A block owns a run of bands and goes over them in passes of a few. Within a pass the
// columns are cut into chunks, which the warps take in turn; each warp sums its own chunks in
// registers, and the warps' sums are added in the order of the warps. So k alone fixes the order of
// each sum.
//
// Two warps supply the weights (band_supplier.cuh). What the others compute is Work: its Shared has
// a BandRing `ring`, kWarps warps compute, a thread has at most kRegisters registers, kMaxBands are
// those of a pass, and Compute(product, share, shared) takes every stage that the suppliers fill.
//
// The norm, the rotation or the activation behind a product starts beside it and waits there for
// its end, and then the next product's weights are on their way sooner. So a block should leave
// room for one of a small kernel (LeavesRoom).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/ceil_div.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/device_math.cuh"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/warpgroup.cuh"
#include "kernels/cuda/matmul/bands/band_ring.cuh"
#include "kernels/cuda/matmul/bands/band_supplier.cuh"
#include "kernels/cuda/matmul/bands/weight_passes.cuh"

namespace quire::cuda {

struct BandProduct {
  const void* x;
  const float* x_scales;  // as TensorView's; null if the elements are the values
  BandWeights w;
  const void* bias;  // null: none
  void* out;
  int tokens;
  int64_t x_stride, x_scale_stride, out_stride;

  template <typename Out>
  __device__ __forceinline__ void Store(float total, int token, int row) const {
    if (bias != nullptr) total += ToFloat(static_cast<const Out*>(bias)[row]);
    static_cast<Out*>(out)[token * out_stride + row] = FromFloat<Out>(total);
  }
};

// A barrier of the warps that compute.
template <int kWarps>
__device__ __forceinline__ void SyncComputing() {
  SyncNamed(1, kWarps * 32);
}

// Whether a block with so many computing warps leaves registers for one of 512 threads with 32
// each. A quarter of a multiprocessor has 16,384 and runs every fourth warp of a block.
constexpr bool LeavesRoom(int warps, int registers) {
  return CeilDiv(warps + kSuppliers, 4) * 32 * registers + 512 / 4 * 32 <= 16384;
}

// The bound on a block's threads that limits a thread to `registers`. __maxnreg__ would too, but
// then the compiler spills more.
constexpr int ThreadsOfRegisters(int registers) { return 65536 / registers / 128 * 128; }

template <typename Work>
__global__ void __launch_bounds__(ThreadsOfRegisters(Work::kRegisters), 1)
    BandKernel(const __grid_constant__ BandProduct p) {
  using Shared = typename Work::Shared;
  // One block a multiprocessor. If two fitted, the next product's blocks would start beside this
  // one's. A multiprocessor whose room a small kernel has taken would then get no block, and
  // another would get two, which take almost twice as long. 8 KiB are for small kernels.
  static_assert(sizeof(Shared) > 113 << 10 && sizeof(Shared) <= 219 << 10);
  constexpr int kBound = ThreadsOfRegisters(Work::kRegisters);
  static_assert(65536 / kBound / 8 * 8 == Work::kRegisters);
  static_assert((Work::kWarps + kSuppliers) * 32 <= kBound);
  extern __shared__ __align__(256) char bytes[];
  auto& shared = *reinterpret_cast<Shared*>(bytes);
  PdlTrigger();
  if (threadIdx.x == 0) shared.ring.Init();
  __syncthreads();
  const RowShare share(p.w.bands(), Work::kMaxBands);
  if (threadIdx.x >= Work::kWarps * 32) {
    BandSupplier supplier(p.w, shared.ring, threadIdx.x / 32 - Work::kWarps);
    supplier.Run(share);
    PdlWait();
    return;
  }
  PdlWait();
  if (threadIdx.x == 0) shared.ring.predecessor.Set();
  Work::Compute(p, share, shared);
}

struct SizedBandKernel {
  void (*kernel)(BandProduct);
  unsigned threads;
  size_t shared_bytes;
};
template <typename Work>
SizedBandKernel BandKernelOf() {
  return {BandKernel<Work>, (Work::kWarps + kSuppliers) * 32, sizeof(typename Work::Shared)};
}

// Once per process and device, before the first launch and outside a capture.
inline void PrepareBandKernel(const SizedBandKernel& sized) {
  CUDA_CHECK(cudaFuncSetAttribute(sized.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(sized.shared_bytes)));
}

inline void LaunchBands(const SizedBandKernel& sized, const BandProduct& product,
                        const Device& device) {
  Launch(device,
         {.blocks = static_cast<unsigned>(std::min(device.num_sms, product.w.bands())),
          .threads = sized.threads,
          .shared_bytes = sized.shared_bytes},
         sized.kernel, product);
}

}  // namespace quire::cuda
