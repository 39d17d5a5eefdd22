// LayerNormRun: the argument of VectorKernels::layer_norm.
#pragma once

#include "kernels/cpu/vector/vector_kernels.h"

namespace quire::cpu {

// out = (x - mean) / sqrt(variance + eps) * weight + bias, of n elements.
struct LayerNormRun {
  const float* x;
  Elements weight;
  Elements bias;  // data null: none
  float eps;
  float* out;
  int64_t n;
};

}  // namespace quire::cpu
