// SiluMul: the gate of a SwiGLU feed-forward layer.
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {

void SiluMul(const SiluMulParams& p, ThreadPool& pool) {
  const int64_t width = p.out.dim[1];
  CHECK_EQ(p.gate_up.dim[1], 2 * width);
  pool.ParallelFor(p.out.dim[0], 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* gate = p.gate_up.row<float>(t);
      const float* up = gate + width;
      float* out = p.out.row<float>(t);
      for (int64_t i = 0; i < width; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
    }
  });
}

}  // namespace quire::cpu
