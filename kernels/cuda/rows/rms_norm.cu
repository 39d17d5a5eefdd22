// RmsNorm: one block a row, the row in registers, one pass over memory. The order of the sum
// depends on the row's length alone: eight elements a thread, the lanes of a warp, then the warps.
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/rows/row_layout.h"
#include "kernels/cuda/rows/row_math.cuh"

namespace quire::cuda {
namespace {

constexpr int kMaxThreads = 1024;

template <typename T, typename Weight>
struct RmsArgs {
  const T* x;
  int64_t x_stride;
  T* residual;  // or null
  int64_t residual_stride;
  const Weight* weight;
  T* out;
  int64_t out_stride;
  int32_t width;
  float eps;
};

// The sum over the block's threads, the same bits in each.
__device__ __forceinline__ float BlockSum(float x) {
  __shared__ float of_warp[kMaxThreads / 32];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  x = WarpSum(x);
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();
  return WarpSum(lane < blockDim.x / 32 ? of_warp[lane] : 0.0f);
}

// The new residual: the sum rounded to the tensor's type, as later reads find it.
template <typename T>
__device__ __forceinline__ Eight Sum(const Eight& x, const Eight& residual) {
  Eight sum;
#pragma unroll
  for (int j = 0; j < 8; ++j) sum.at[j] = Rounded<T>(residual.at[j] + x.at[j]);
  return sum;
}

// Thread t holds elements [8 t, 8 t + 8) of every kEights-th part of the row.
template <typename T, typename Weight, int kEights>
__global__ void __launch_bounds__(kMaxThreads) RmsNormKernel(RmsArgs<T, Weight> a) {
  PdlTrigger();
  Eight weight[kEights], x[kEights];
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = (i * blockDim.x + threadIdx.x) * 8;
    if (at < a.width) weight[i] = LoadEight(a.weight + at);
  }
  PdlWait();
  const T* row = a.x + blockIdx.x * a.x_stride;
  T* residual = a.residual + blockIdx.x * a.residual_stride;
  Packed<T> of_row[kEights] = {}, of_residual[kEights];
  // Issues both loads before the first use.
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = (i * blockDim.x + threadIdx.x) * 8;
    if (at >= a.width) continue;
    of_row[i] = LoadPacked(row + at);
    if (a.residual != nullptr) of_residual[i] = LoadPacked(residual + at);
  }
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = (i * blockDim.x + threadIdx.x) * 8;
    x[i] = Unpack(of_row[i]);
    if (a.residual == nullptr || at >= a.width) continue;
    x[i] = Sum<T>(x[i], Unpack(of_residual[i]));
    StoreEight(residual + at, x[i]);
  }
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) squares = fmaf(x[i].at[j], x[i].at[j], squares);
  }
  const float factor = rsqrtf(BlockSum(squares) / static_cast<float>(a.width) + a.eps);
  T* out = a.out + blockIdx.x * a.out_stride;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = (i * blockDim.x + threadIdx.x) * 8;
    if (at >= a.width) continue;
      // Rounds before the weight, as norms in Hugging Face transformers do.
#pragma unroll
    for (int j = 0; j < 8; ++j) x[i].at[j] = Rounded<T>(x[i].at[j] * factor) * weight[i].at[j];
    StoreEight(out + at, x[i]);
  }
}

template <typename T, typename Weight>
void LaunchRmsNorm(const RmsNormParams& p, const Device& device) {
  const RmsArgs<T, Weight> args{.x = p.x.ptr<T>(),
                                .x_stride = p.x.row_stride,
                                .residual = p.residual.ptr<T>(),
                                .residual_stride = p.residual.row_stride,
                                .weight = p.weight.ptr<Weight>(),
                                .out = p.out.ptr<T>(),
                                .out_stride = p.out.row_stride,
                                .width = static_cast<int32_t>(p.x.dim[1]),
                                .eps = p.eps};
  const int64_t eights = p.x.dim[1] / 8;
  const Grid grid{.blocks = Blocks(p.x.dim[0], 1), .threads = ThreadsFor(eights, kMaxThreads)};
  if (eights <= kMaxThreads) {
    Launch(device, grid, RmsNormKernel<T, Weight, 1>, args);
  } else {
    static_assert(kCudaLimits.max_hidden == 2 * kMaxThreads * 8);
    CHECK_LE(eights, 2 * kMaxThreads);
    Launch(device, grid, RmsNormKernel<T, Weight, 2>, args);
  }
}

}  // namespace

void RmsNorm(const RmsNormParams& p, const Device& device) {
  CheckRowsOfEights(p.x);
  CheckRowsOfEights(p.out);
  CHECK(p.x.dtype == p.out.dtype && p.x.dim[0] == p.out.dim[0] && p.x.dim[1] == p.out.dim[1]);
  CHECK_EQ(p.weight.size(), p.x.dim[1]);
  CHECK_EQ(reinterpret_cast<uintptr_t>(p.weight.data) % 16, 0);
  if (!p.residual.empty()) {
    CheckRowsOfEights(p.residual);
    CHECK(p.residual.dtype == p.x.dtype && p.residual.dim[0] == p.x.dim[0]);
  }
  if (p.x.dim[0] == 0) return;
  DispatchDevice(p.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (p.weight.dtype == p.x.dtype) return LaunchRmsNorm<T, T>(p, device);
    CHECK(p.weight.dtype == DType::kF32);
    LaunchRmsNorm<T, float>(p, device);
  });
}

}  // namespace quire::cuda
