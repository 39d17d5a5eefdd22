// Quantize: 8-bit elements and a scale for each row. Rows are independent and split over the
// threads.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/row_scale.h"

namespace quire::cpu {

// A NaN decides no scale, and stays NaN.
void StoreEightBit(const float* row, const TensorView& out, int64_t t) {
  const int64_t width = out.dim[1];
  float largest = 0;
  for (int64_t i = 0; i < width; ++i) largest = std::fmax(largest, std::abs(row[i]));
  const RowScale scale = RowScaleFor(largest);
  E4M3* to = out.row<E4M3>(t);
  for (int64_t i = 0; i < width; ++i) to[i] = FromFloat<E4M3>(row[i] * scale.inverse);
  out.scales[t] = scale.scale;
}

void Quantize(const QuantizeParams& p, const Cores& cores) {
  CHECK(p.x.dtype == DType::kF32 && p.out.dtype == DType::kE4M3 && p.out.scales != nullptr);
  CHECK(p.out.dim[0] == p.x.dim[0] && p.out.dim[1] == p.x.dim[1]);
  cores.pool.ParallelFor(p.x.dim[0], RowsPerRange(p.x.dim[1] * 2), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) StoreEightBit(p.x.row<float>(t), p.out, t);
  });
}

}  // namespace quire::cpu
