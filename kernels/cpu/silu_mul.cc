// SiluMul: the gate of a SwiGLU feed-forward layer. Rows are independent and split over the
// threads.
#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {

void SiluMul(const SiluMulParams& p, const Cores& cores) {
  const int64_t width = p.out.dim[1];
  CHECK(p.gate_up.dtype == DType::kF32);
  CHECK(p.gate_up.dim[0] == p.out.dim[0] && p.gate_up.dim[1] == 2 * width);
  cores.pool.ParallelFor(p.out.dim[0], RowsPerRange(width / 2), [&](int64_t begin, int64_t end) {
    const RowSink out(p.out);
    for (int64_t t = begin; t < end; ++t) {
      const float* gate = p.gate_up.row<float>(t);
      cores.kernels.silu_mul(gate, gate + width, out.Begin(t), width);
      out.Finish(t);
    }
  });
}

}  // namespace quire::cpu
