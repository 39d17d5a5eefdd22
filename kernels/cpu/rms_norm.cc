// RmsNorm, one row at a time.
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {

void RmsNorm(const RmsNormParams& p, ThreadPool& pool) {
  const int64_t width = p.x.dim[1];
  DispatchFloat(p.weight.dtype, [&](auto tag) {
    using W = decltype(tag);
    const W* weight = p.weight.ptr<W>();
    pool.ParallelFor(p.x.dim[0], 16, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const float* x = p.x.row<float>(t);
        if (!p.residual.empty()) {
          float* residual = p.residual.row<float>(t);
          for (int64_t i = 0; i < width; ++i) residual[i] += x[i];
          x = residual;
        }
        float sum = 0;
        for (int64_t i = 0; i < width; ++i) sum += x[i] * x[i];
        const float factor = 1.0f / std::sqrt(sum / static_cast<float>(width) + p.eps);
        float* out = p.out.row<float>(t);
        for (int64_t i = 0; i < width; ++i) out[i] = x[i] * factor * ToFloat(weight[i]);
      }
    });
  });
}

}  // namespace quire::cpu
