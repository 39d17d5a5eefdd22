// Gelu: the activation of a feed-forward layer, with a gate or without. Rows are independent and
// split over the threads.
#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {

void Gelu(const GeluParams& p, const Cores& cores) {
  const int64_t width = p.out.dim[1];
  CHECK(p.x.dtype == DType::kF32);
  CHECK(p.x.dim[0] == p.out.dim[0] && p.x.dim[1] == (p.gated ? 2 * width : width));
  cores.pool.ParallelFor(p.out.dim[0], RowsPerRange(width / 2), [&](int64_t begin, int64_t end) {
    const RowSink out(p.out);
    for (int64_t t = begin; t < end; ++t) {
      const float* x = p.x.row<float>(t);
      cores.kernels.gelu(x, p.gated ? x + width : nullptr, out.Begin(t), width);
      out.Finish(t);
    }
  });
}

}  // namespace quire::cpu
