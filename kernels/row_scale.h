// RowScale: how a row of activations or weights becomes 8-bit, for every device. The row's largest
// element becomes the largest 8-bit one, so a row's elements depend on that row alone. Where runs
// of a row have scales of their own, each run counts as a row. InverseOf:
// the same for keys and values, whose scales are given.
#pragma once

#include <limits>

#include "kernels/dtype.h"

namespace quire {

// Columns of such a run, and of the blocks of weights that it is multiplied with: as checkpoints
// are published. A block of weights has as many rows.
inline constexpr int32_t kScaleRun = 128;

// element = FromFloat<E4M3>(value * inverse), or FromFloat<I8>; value = element * scale.
struct RowScale {
  float scale;
  float inverse;
};

// `largest` is the row's largest absolute value. A row smaller than 2^-100 counts as that size, so
// that the inverse is finite; a row of zeros stays zeros. `most` is the largest element of the
// type. A row of integers, which know no NaN, has a NaN as its scale if it has one at all.
constexpr RowScale RowScaleFor(float largest, float most = kE4M3Max) {
  constexpr float kLeast = 0x1p-100f;
  const float size = largest < kLeast ? kLeast : largest;
  return {size / most, most / size};
}

// The factor of elements with this scale, which is above 0. A scale whose inverse is no float has
// the largest float, so that zeros stay zeros.
constexpr float InverseOf(float scale) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const float inverse = 1 / scale;
  return inverse > kMost ? kMost : inverse;
}

}  // namespace quire
