// GatherColumns: brings the input of a product into the order of a matrix whose columns were sorted
// when it was loaded, so that those that share a scale are neighbours.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace quire {

// out[t, c] = x[t, columns[c]].
struct GatherColumnsParams {
  TensorView x;            // [T, W]
  const int32_t* columns;  // [W], each in [0, W)
  TensorView out;          // [T, W], of x's type; another tensor than x
};

}  // namespace quire
