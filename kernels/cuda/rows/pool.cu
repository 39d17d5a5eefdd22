// Pool: a thread adds up one column of a job's rows, in order.
#include "kernels/ceil_div.h"
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/rows/row_layout.h"
#include "kernels/cuda/rows/row_math.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
struct PoolArgs {
  const T* x;
  int64_t stride, rows, width;
  const PoolJob* jobs;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) PoolKernel(PoolArgs<T> a) {
  PdlTrigger();
  PdlWait();
  const PoolJob job = a.jobs[blockIdx.y];
  DeviceCheck(job.begin >= 0 && job.begin + int64_t{job.count} <= a.rows);
  const int64_t h = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (h >= a.width) return;
  float sum = job.adds != 0 ? job.out[h] : 0.0f;
  const T* x = a.x + job.begin * a.stride + h;
#pragma unroll 8
  for (int32_t i = 0; i < job.count; ++i) sum += ToFloat(x[i * a.stride]);
  job.out[h] = sum;
}

}  // namespace

void Pool(const PoolParams& p, const Device& device) {
  if (p.num_jobs == 0) return;
  CHECK_LE(p.num_jobs, 65535);
  DispatchDevice(p.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    const PoolArgs<T> args{.x = p.x.ptr<T>(),
                           .stride = p.x.row_stride,
                           .rows = p.x.dim[0],
                           .width = p.x.dim[1],
                           .jobs = p.jobs};
    const Grid grid{.blocks = dim3(static_cast<unsigned>(CeilDiv<int64_t>(p.x.dim[1], kThreads)),
                                   static_cast<unsigned>(p.num_jobs)),
                    .threads = kThreads};
    Launch(device, grid, PoolKernel<T>, args);
  });
}

}  // namespace quire::cuda
