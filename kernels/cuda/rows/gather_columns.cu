// GatherColumns: copies the listed columns of each row. A block takes a run of columns of a few
// rows, so that it reads their indices once.
#include <algorithm>

#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/rows/row_layout.h"
#include "kernels/cuda/rows/row_math.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 4;  // of a block, at most

// Elements of 16 bits, whatever they mean.
struct ColumnArgs {
  const uint16_t* x;
  const int32_t* columns;
  uint16_t* out;
  int64_t x_stride, out_stride;
  int rows, width;
};

__global__ void __launch_bounds__(kThreads) GatherColumnsKernel(ColumnArgs a) {
  PdlTrigger();
  const int column = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const bool within = column < a.width;
  const int from = within ? a.columns[column] : 0;  // a weight, which no predecessor writes
  DeviceCheck(from >= 0 && from < a.width);
  PdlWait();
  if (!within) return;
  const int begin = static_cast<int>(blockIdx.y) * kRows;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t row = begin + i;
    if (row < a.rows) a.out[row * a.out_stride + column] = a.x[row * a.x_stride + from];
  }
}

}  // namespace

void GatherColumns(const GatherColumnsParams& p, const Device& device) {
  CHECK(p.x.dtype == p.out.dtype && SizeOf(p.x.dtype) == 2);
  CHECK(p.x.dim == p.out.dim && p.x.data != p.out.data);
  if (p.out.size() == 0) return;
  const ColumnArgs args{.x = p.x.ptr<uint16_t>(),
                        .columns = p.columns,
                        .out = p.out.ptr<uint16_t>(),
                        .x_stride = p.x.row_stride,
                        .out_stride = p.out.row_stride,
                        .rows = static_cast<int>(p.out.dim[0]),
                        .width = static_cast<int>(p.out.dim[1])};
  const Grid grid{.blocks = {Blocks(args.width, kThreads), Blocks(args.rows, kRows)},
                  .threads = kThreads};
  Launch(device, grid, GatherColumnsKernel, args);
}

}  // namespace quire::cuda
