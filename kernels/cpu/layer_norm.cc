// LayerNorm: rows are independent and split over the threads.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/vector/layer_norm_run.h"

namespace quire::cpu {

void LayerNorm(const LayerNormParams& p, const Cores& cores) {
  const int64_t width = p.x.dim[1];
  CHECK(p.x.dtype == DType::kF32 && p.out.dtype == DType::kF32);
  CHECK(p.out.dim[0] == p.x.dim[0] && p.out.dim[1] == width);
  CHECK(p.groups > 0 && width % p.groups == 0);
  const int64_t run = width / p.groups;
  CHECK(p.weight.size() == width || p.weight.size() == run);
  CHECK(p.bias.empty() || p.bias.size() == p.weight.size());
  const int64_t weight_step = p.weight.size() == run ? 0 : run;
  cores.pool.ParallelFor(p.x.dim[0], RowsPerRange(width / 2), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t g = 0; g < p.groups; ++g) {
        const Elements weight = ElementsAt(p.weight, g * weight_step);
        const Elements bias = p.bias.empty() ? Elements{} : ElementsAt(p.bias, g * weight_step);
        cores.kernels.layer_norm({.x = p.x.row<float>(t) + g * run,
                                  .weight = weight,
                                  .bias = bias,
                                  .eps = p.eps,
                                  .out = p.out.row<float>(t) + g * run,
                                  .n = run});
      }
    }
  });
}

}  // namespace quire::cpu
