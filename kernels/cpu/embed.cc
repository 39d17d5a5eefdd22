// Embed: copies table rows; ids of other ranks' rows give zeros, which the all-reduce then fills.
#include <algorithm>

#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {

void Embed(const EmbedParams& p, ThreadPool& pool) {
  const int64_t width = p.out.dim[1];
  CHECK(p.out.dtype == DType::kF32 && p.table.dim[1] == width);
  DispatchFloat(p.table.dtype, [&](auto tag) {
    using W = decltype(tag);
    pool.ParallelFor(p.out.dim[0], 64, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        float* out = p.out.row<float>(t);
        const int64_t row = int64_t{p.ids[t]} - p.vocab_begin;
        if (row < 0 || row >= p.table.dim[0]) {
          std::fill(out, out + width, 0.0f);
          continue;
        }
        const W* from = p.table.row<W>(row);
        for (int64_t i = 0; i < width; ++i) out[i] = ToFloat(from[i]);
      }
    });
  });
}

}  // namespace quire::cpu
