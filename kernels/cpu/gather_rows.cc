// GatherRows, GatherColumns: copy the listed rows, or columns.
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {

void GatherRows(const GatherRowsParams& p, const Cores& cores) {
  const int64_t width = p.out.dim[1];
  CHECK(p.x.dtype == DType::kF32 && p.out.dtype == DType::kF32 && p.x.dim[1] == width);
  cores.pool.ParallelFor(p.out.dim[0], RowsPerRange(width / 8), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      CHECK(p.rows[r] >= 0 && p.rows[r] < p.x.dim[0]);
      std::memcpy(p.out.row<float>(r), p.x.row<float>(p.rows[r]),
                  static_cast<size_t>(width) * sizeof(float));
    }
  });
}

void GatherColumns(const GatherColumnsParams& p, const Cores& cores) {
  const int64_t width = p.out.dim[1];
  CHECK(p.x.dtype == DType::kF32 && p.out.dtype == DType::kF32 && p.x.dim == p.out.dim);
  cores.pool.ParallelFor(p.out.dim[0], RowsPerRange(width), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* const from = p.x.row<float>(t);
      float* const to = p.out.row<float>(t);
      for (int64_t c = 0; c < width; ++c) to[c] = from[p.columns[c]];
    }
  });
}

}  // namespace quire::cpu
