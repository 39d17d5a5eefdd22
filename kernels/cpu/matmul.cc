// MatMul: rows of w are split over the threads.
#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {

void MatMul(const MatMulParams& p, ThreadPool& pool) {
  const int64_t tokens = p.x.dim[0], k = p.x.dim[1], n = p.w.dim[0];
  CHECK(p.w.dim[1] == k && p.out.dim[0] == tokens && p.out.dim[1] == n);
  DispatchFloat(p.w.dtype, [&](auto tag) {
    using W = decltype(tag);
    pool.ParallelFor(n, 16, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        const W* w = p.w.row<W>(j);
        float bias = 0;
        if (!p.bias.empty()) {
          bias = DispatchFloat(p.bias.dtype,
                               [&](auto b) { return ToFloat(p.bias.ptr<decltype(b)>()[j]); });
        }
        for (int64_t t = 0; t < tokens; ++t) {
          const float* x = p.x.row<float>(t);
          float sum[8] = {};
          for (int64_t i = 0; i < k; ++i) sum[i % 8] += x[i] * ToFloat(w[i]);
          p.out.row<float>(t)[j] = ((sum[0] + sum[4]) + (sum[1] + sum[5])) +
                                   ((sum[2] + sum[6]) + (sum[3] + sum[7])) + bias;
        }
      }
    });
  });
}

}  // namespace quire::cpu
