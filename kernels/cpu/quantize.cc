// Quantize: 8-bit elements and a scale for each row, or for each run of a row. Rows are independent
// and split over the threads.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/row_scale.h"

namespace quire::cpu {

namespace {

// Writes a run of elements and returns their scale. A NaN decides no scale, and stays NaN.
float StoreRun(const float* from, int64_t count, E4M3* to) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::fmax(largest, std::abs(from[i]));
  const RowScale scale = RowScaleFor(largest);
  for (int64_t i = 0; i < count; ++i) to[i] = FromFloat<E4M3>(from[i] * scale.inverse);
  return scale.scale;
}

}  // namespace

void StoreEightBit(const float* row, const TensorView& out, int64_t t) {
  const int64_t width = out.dim[1], run = out.scale_columns > 0 ? out.scale_columns : width;
  for (int64_t c = 0; c < width; c += run) {
    const int64_t count = std::min(run, width - c);
    out.scales[out.ScaleIndex(t, c)] = StoreRun(row + c, count, out.row<E4M3>(t) + c);
  }
}

void Quantize(const QuantizeParams& p, const Cores& cores) {
  CHECK(p.x.dtype == DType::kF32 && p.out.dtype == DType::kE4M3 && p.out.scales != nullptr);
  CHECK(p.out.dim[0] == p.x.dim[0] && p.out.dim[1] == p.x.dim[1]);
  cores.pool.ParallelFor(p.x.dim[0], RowsPerRange(p.x.dim[1] * 2), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) StoreEightBit(p.x.row<float>(t), p.out, t);
  });
}

}  // namespace quire::cpu
