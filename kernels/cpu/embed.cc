// Embed: copies rows of the table. An id of another rank's row gives zeros, and the all-reduce then
// adds that rank's row.
#include <algorithm>

#include "kernels/cpu/cpu_kernels.h"

namespace quire::cpu {

void Embed(const EmbedParams& p, const Cores& cores) {
  const int64_t width = p.out.dim[1];
  CHECK(p.out.dtype == DType::kF32 && p.table.dim[1] == width);
  cores.pool.ParallelFor(p.out.dim[0], RowsPerRange(width / 8), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* out = p.out.row<float>(t);
      const int64_t row = int64_t{p.ids[t]} - p.vocab_begin;
      if (row < 0 || row >= p.table.dim[0]) {
        std::fill(out, out + width, 0.0f);
      } else {
        cores.kernels.widen(RowOf(p.table, row), out, width);
      }
    }
  });
}

}  // namespace quire::cpu
