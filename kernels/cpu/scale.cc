// AddScaled and Scale: sums and scales of rows, split over the threads.
#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {

void AddScaled(const AddScaledParams& p, const Cores& cores) {
  const int64_t width = p.x.dim[1];
  CHECK(p.x.dtype == DType::kF32 && p.out.dtype == DType::kF32);
  CHECK(p.out.dim[0] == p.x.dim[0] && p.out.dim[1] == width);
  cores.pool.ParallelFor(p.x.dim[0], RowsPerRange(width / 8), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      cores.kernels.add_scaled(p.out.row<float>(t), p.x.row<float>(t), p.scale, width);
    }
  });
}

void Scale(const ScaleParams& p, const Cores& cores) {
  const int64_t width = p.x.dim[1];
  CHECK(p.x.dtype == DType::kF32 && p.cap >= 0);
  cores.pool.ParallelFor(p.x.dim[0], RowsPerRange(width / 2), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      cores.kernels.scale(p.x.row<float>(t), p.factor, p.cap, width);
    }
  });
}

}  // namespace quire::cpu
