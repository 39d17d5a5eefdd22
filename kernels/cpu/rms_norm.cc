// RmsNorm: rows are independent and split over the threads.
#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {

void RmsNorm(const RmsNormParams& p, const Cores& cores) {
  const int64_t width = p.x.dim[1];
  CHECK(p.x.dtype == DType::kF32);
  CHECK(p.out.dim[0] == p.x.dim[0] && p.out.dim[1] == width && p.weight.size() == width);
  const Elements weight{p.weight.data, p.weight.dtype};
  cores.pool.ParallelFor(p.x.dim[0], RowsPerRange(width / 4), [&](int64_t begin, int64_t end) {
    const RowSink out(p.out);
    for (int64_t t = begin; t < end; ++t) {
      const float* x = p.x.row<float>(t);
      if (!p.residual.empty()) {
        float* residual = p.residual.row<float>(t);
        cores.kernels.add(residual, x, width);
        x = residual;
      }
      cores.kernels.rms_norm(x, weight, p.eps, out.Begin(t), width);
      out.Finish(t);
    }
  });
}

}  // namespace quire::cpu
