// Quantize: 8-bit elements and a scale for each row, or for each run of a row. Rows are independent
// and split over the threads.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/row_scale.h"

namespace quire::cpu {

namespace {

// Writes a run of elements and returns their scale. A NaN decides no scale, and stays NaN, unless
// the elements are integers: then it is the scale.
template <typename T>
float StoreRun(const float* from, int64_t count, T* to) {
  constexpr bool kIntegers = std::is_same_v<T, I8>;
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::fmax(largest, std::abs(from[i]));
  for (int64_t i = 0; kIntegers && i < count; ++i) largest = from[i] == from[i] ? largest : NAN;
  const RowScale scale = RowScaleFor(largest, kIntegers ? kI8Max : kE4M3Max);
  for (int64_t i = 0; i < count; ++i) to[i] = FromFloat<T>(from[i] * scale.inverse);
  return scale.scale;
}

}  // namespace

void StoreEightBit(const float* row, const TensorView& out, int64_t t) {
  const int64_t width = out.dim[1], run = out.scale_columns > 0 ? out.scale_columns : width;
  for (int64_t c = 0; c < width; c += run) {
    const int64_t count = std::min(run, width - c);
    float& scale = out.scales[out.ScaleIndex(t, c)];
    if (out.dtype == DType::kI8) {
      scale = StoreRun(row + c, count, out.row<I8>(t) + c);
    } else {
      scale = StoreRun(row + c, count, out.row<E4M3>(t) + c);
    }
  }
}

void Quantize(const QuantizeParams& p, const Cores& cores) {
  CHECK(p.x.dtype == DType::kF32 && IsEightBit(p.out.dtype) && p.out.scales != nullptr);
  CHECK(p.out.dim[0] == p.x.dim[0] && p.out.dim[1] == p.x.dim[1]);
  cores.pool.ParallelFor(p.x.dim[0], RowsPerRange(p.x.dim[1] * 2), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) StoreEightBit(p.x.row<float>(t), p.out, t);
  });
}

}  // namespace quire::cpu
