// LayerNorm: a run of at most 256 elements by the least power of two of a warp's lanes that holds
// it, a longer one by a block. The run lies in registers, so that mean and variance take one pass
// over memory each, and the output may take its place. The run's length alone fixes the order of
// the sums.
#include <bit>

#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/rows/block_row.cuh"
#include "kernels/cuda/rows/row_layout.h"

namespace quire::cuda {
namespace {

constexpr int kWarpRun = 256;  // the most elements of a run that a warp takes
constexpr int kWarpThreads = 256;

template <typename T, typename Weight>
struct LayerNormArgs {
  const T* x;
  int64_t x_stride;
  const Weight* weight;
  const Weight* bias;   // or null
  int32_t weight_step;  // from a run's weights to the next run's: 0 where all share them
  T* out;
  int64_t out_stride;
  int64_t runs;  // of all rows
  int32_t groups, width;
  float eps;
};

// The lanes of a run: which run this is, where this thread's i-th eight elements begin, and the sum
// over the run's threads.
struct LanesOfBlock {
  static constexpr int kMost = kMaxNormThreads;
  __device__ int64_t Run() const { return blockIdx.x; }
  __device__ int At(int i) const { return RowOffset(i); }
  __device__ float Sum(float x) const {
    __syncthreads();  // the sum before has been read
    return BlockSum(x);
  }
};
struct LanesOfWarp {
  static constexpr int kMost = kWarpThreads;
  int lanes;  // a power of two
  __device__ int64_t Run() const {
    return int64_t{blockIdx.x} * (kWarpThreads / lanes) + threadIdx.x / lanes;
  }
  __device__ int At(int) const { return static_cast<int>(threadIdx.x) % lanes * 8; }
  __device__ float Sum(float x) const { return SumOfLanes(x, lanes); }
};

// Replaces x by (x - mean) / sqrt(variance + eps). Elements past the run are 0 before.
template <int kEights, typename Lanes>
__device__ __forceinline__ void Standardise(const Lanes& lanes, int width, float eps,
                                            Eight (&x)[kEights]) {
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += x[i].at[j];
  }
  const float mean = lanes.Sum(sum) / static_cast<float>(width);
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    if (lanes.At(i) >= width) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      x[i].at[j] -= mean;
      squares = fmaf(x[i].at[j], x[i].at[j], squares);
    }
  }
  const float factor = rsqrtf(lanes.Sum(squares) / static_cast<float>(width) + eps);
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) x[i].at[j] *= factor;
  }
}

template <typename T, typename Weight, int kEights, typename Lanes>
__global__ void __launch_bounds__(Lanes::kMost)
    LayerNormKernel(LayerNormArgs<T, Weight> a, const Lanes lanes) {
  PdlTrigger();
  // All lanes of a warp must take part in its sums, so lanes past the last run or its end have
  // zeros.
  const int64_t run = lanes.Run(), row = a.groups == 1 ? run : run / a.groups;
  const int group = static_cast<int>(run - row * a.groups);
  const int width = run < a.runs ? a.width : 0;
  Packed<Weight> weight[kEights], bias[kEights] = {};
  Eight x[kEights];
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = lanes.At(i), of_run = group * a.weight_step + at;
    if (at >= width) continue;
    weight[i] = LoadPacked(a.weight + of_run);
    if (a.bias != nullptr) bias[i] = LoadPacked(a.bias + of_run);
  }
  PdlWait();
  const int64_t begin = int64_t{group} * a.width;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    x[i] = lanes.At(i) < width ? LoadEight(a.x + row * a.x_stride + begin + lanes.At(i)) : Eight{};
  }
  Standardise(lanes, a.width, a.eps, x);
  T* const out = a.out + row * a.out_stride + begin;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int at = lanes.At(i);
    if (at >= width) continue;
    const Eight by = Unpack(weight[i]), plus = Unpack(bias[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) x[i].at[j] = fmaf(x[i].at[j], by.at[j], plus.at[j]);
    StoreEight(out + at, x[i]);
  }
}

template <typename T, typename Weight>
void LaunchLayerNorm(const LayerNormParams& p, const Device& device) {
  const int64_t width = p.x.dim[1] / p.groups, runs = p.x.dim[0] * p.groups;
  const LayerNormArgs<T, Weight> args{
      .x = p.x.ptr<T>(),
      .x_stride = p.x.row_stride,
      .weight = p.weight.ptr<Weight>(),
      .bias = p.bias.ptr<Weight>(),
      .weight_step = p.weight.size() == width ? 0 : static_cast<int32_t>(width),
      .out = p.out.ptr<T>(),
      .out_stride = p.out.row_stride,
      .runs = runs,
      .groups = p.groups,
      .width = static_cast<int32_t>(width),
      .eps = p.eps};
  const int64_t eights = width / 8;
  if (width <= kWarpRun) {
    const auto lanes = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(eights)));
    const Grid grid{.blocks = Blocks(runs, kWarpThreads / lanes), .threads = kWarpThreads};
    Launch(device, grid, LayerNormKernel<T, Weight, 1, LanesOfWarp>, args, LanesOfWarp{lanes});
    return;
  }
  const Grid grid{.blocks = Blocks(runs, 1), .threads = ThreadsFor(eights, kMaxNormThreads)};
  Launch(device, grid,
         eights <= kMaxNormThreads ? LayerNormKernel<T, Weight, 1, LanesOfBlock>
                                   : LayerNormKernel<T, Weight, 2, LanesOfBlock>,
         args, LanesOfBlock{});
}

void CheckLayerNorm(const LayerNormParams& p) {
  static_assert(kCudaLimits.max_hidden == 2 * kMaxNormThreads * 8);
  CheckRowsOfEights(p.x);
  CheckRowsOfEights(p.out);
  CHECK(p.x.dtype == p.out.dtype && p.x.dim[0] == p.out.dim[0] && p.x.dim[1] == p.out.dim[1]);
  CHECK(p.groups > 0 && p.x.dim[1] % (int64_t{p.groups} * 8) == 0);
  const int64_t width = p.x.dim[1] / p.groups;
  CHECK_LE(width, kCudaLimits.max_hidden);
  CHECK(p.weight.size() == width || p.weight.size() == p.x.dim[1]);
  CHECK(p.bias.empty() || (p.bias.size() == p.weight.size() && p.bias.dtype == p.weight.dtype));
  for (const void* data : {p.weight.data, p.bias.data}) {
    CHECK_EQ(reinterpret_cast<uintptr_t>(data) % 16, 0);
  }
}

}  // namespace

void LayerNorm(const LayerNormParams& p, const Device& device) {
  CheckLayerNorm(p);
  if (p.x.size() == 0) return;
  DispatchDevice(p.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (p.weight.dtype == p.x.dtype) return LaunchLayerNorm<T, T>(p, device);
    CHECK(p.weight.dtype == DType::kF32);
    LaunchLayerNorm<T, float>(p, device);
  });
}

}  // namespace quire::cuda
