// RmsNorm: one block a row.
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/rows/rms_row.cuh"

namespace quire::cuda {
namespace {

template <typename T, typename Weight, typename Out, int kEights>
__global__ void __launch_bounds__(kMaxNormThreads) RmsNormKernel(RmsArgs<T, Weight, Out> a) {
  PdlTrigger();
  Eight weight[kEights], x[kEights];
  LoadWeights(a, weight);
  PdlWait();
  const T* row = a.x + blockIdx.x * a.x_stride;
  Packed<T> of_row[kEights] = {}, residual[kEights];
  // Issues both loads before the first use.
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = RowOffset(i);
    if (at < a.width) of_row[i] = LoadPacked(row + at);
  }
  LoadResidual(a, blockIdx.x, residual);
  AddResidual(a, blockIdx.x, of_row, residual, x);
  NormRow(a, blockIdx.x, weight, x);
}

template <typename T, typename Weight, typename Out>
void LaunchRmsNorm(const RmsNormParams& p, const Device& device) {
  const auto args = ArgsOf<T, Weight, Out>(p);
  const int64_t eights = p.x.dim[1] / 8;
  const Grid grid{.blocks = Blocks(p.x.dim[0], 1), .threads = ThreadsFor(eights, kMaxNormThreads)};
  if (eights <= kMaxNormThreads) {
    Launch(device, grid, RmsNormKernel<T, Weight, Out, 1>, args);
  } else {
    Launch(device, grid, RmsNormKernel<T, Weight, Out, 2>, args);
  }
}

template <typename T, typename Weight>
void LaunchTo(const RmsNormParams& p, const Device& device) {
  if (p.out.dtype == DType::kE4M3) return LaunchRmsNorm<T, Weight, __nv_fp8_e4m3>(p, device);
  if (p.out.dtype == DType::kI8) return LaunchRmsNorm<T, Weight, int8_t>(p, device);
  LaunchRmsNorm<T, Weight, T>(p, device);
}

}  // namespace

void RmsNorm(const RmsNormParams& p, const Device& device) {
  CheckRmsNorm(p);
  if (p.x.dim[0] == 0) return;
  DispatchDevice(p.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (p.weight.dtype == p.x.dtype) return LaunchTo<T, T>(p, device);
    CHECK(p.weight.dtype == DType::kF32);
    LaunchTo<T, float>(p, device);
  });
}

}  // namespace quire::cuda
