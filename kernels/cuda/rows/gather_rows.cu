// GatherRows: copies the listed rows, of any element type and alignment.
#include "kernels/cuda/device/cuda_kernels.h"
#include "kernels/cuda/rows/row_layout.h"
#include "kernels/cuda/rows/row_math.cuh"

namespace quire::cuda {
namespace {

// Copies rows of `width` words. Word is the widest type that the alignment allows.
template <typename Word>
struct GatherArgs {
  const Word* x;
  int64_t x_stride, x_rows;
  const int32_t* rows;
  Word* out;
  int64_t out_stride, width;
};

template <typename Word>
__global__ void __launch_bounds__(512) GatherRowsKernel(GatherArgs<Word> a) {
  PdlTrigger();
  PdlWait();
  const int64_t row = a.rows[blockIdx.x];
  DeviceCheck(row >= 0 && row < a.x_rows);
  const Word* from = a.x + row * a.x_stride;
  Word* to = a.out + blockIdx.x * a.out_stride;
  for (int64_t i = threadIdx.x; i < a.width; i += blockDim.x) to[i] = from[i];
}

template <typename Word>
void Gather(const GatherRowsParams& p, const Device& device) {
  const auto words = [&](int64_t elements) {
    return elements * static_cast<int64_t>(SizeOf(p.x.dtype)) / static_cast<int64_t>(sizeof(Word));
  };
  const GatherArgs<Word> args{.x = p.x.ptr<Word>(),
                              .x_stride = words(p.x.row_stride),
                              .x_rows = p.x.dim[0],
                              .rows = p.rows,
                              .out = p.out.ptr<Word>(),
                              .out_stride = words(p.out.row_stride),
                              .width = words(p.out.dim[1])};
  const Grid grid{.blocks = Blocks(p.out.dim[0], 1), .threads = ThreadsFor(args.width, 512)};
  Launch(device, grid, GatherRowsKernel<Word>, args);
}

}  // namespace

void GatherRows(const GatherRowsParams& p, const Device& device) {
  CHECK(p.x.dtype == p.out.dtype && p.x.dim[1] == p.out.dim[1]);
  if (p.out.dim[0] == 0) return;
  const int64_t size = static_cast<int64_t>(SizeOf(p.x.dtype));
  // A bit below 16 that is set in any of these bytes bounds the alignment of all rows.
  const uint64_t misaligned =
      reinterpret_cast<uintptr_t>(p.x.data) | reinterpret_cast<uintptr_t>(p.out.data) |
      static_cast<uint64_t>(p.x.row_stride * size) |
      static_cast<uint64_t>(p.out.row_stride * size) | static_cast<uint64_t>(p.out.dim[1] * size);
  if (misaligned % 16 == 0) {
    Gather<uint4>(p, device);
  } else if (size == 4) {
    Gather<uint32_t>(p, device);
  } else {
    Gather<uint16_t>(p, device);
  }
}

}  // namespace quire::cuda
