// FamilyOperations: the operations of a forward pass that some models need beside those of
// operations.h. The letters of shapes are those of ops.h.
#pragma once

#include <cstdint>

#include "kernels/column_order.h"
#include "kernels/tensor.h"

namespace quire {

// Each row of x is `groups` runs of equal width. out = (v - mean) / sqrt(variance + eps) * weight +
// bias for each run v by itself, where mean and variance are those of the run. out may alias x.
struct LayerNormParams {
  TensorView x;       // [T, W]
  int32_t groups;     // a divisor of W
  TensorView weight;  // [W] or [W / groups], which every run uses
  TensorView bias;    // as weight, or empty
  float eps;
  TensorView out;  // [T, W]
};

// out += scale * x.
struct AddScaledParams {
  TensorView x;  // [T, H]
  float scale;
  TensorView out;  // [T, H]; updated in place
};

// x = factor * x, and with cap > 0 then x = cap * tanh(x / cap), in place.
struct ScaleParams {
  TensorView x;  // [T, H], or logits [R, V]
  float factor;
  float cap;  // 0: none
};

// out = gelu(x), and if `gated`, out[t, i] = gelu(x[t, i]) * x[t, I + i], with
// gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))). out may alias x.
struct GeluParams {
  TensorView x;  // [T, I], or [T, 2I] if gated
  bool gated;
  TensorView out;  // [T, I]; or 8-bit
};

// out = x with 8-bit elements and a scale for each row, or, where out has scale_columns, for each
// run of as many columns (row_scale.h). The operations that write the
// input of a product (RmsNorm, SiluMul, Gelu) do the same where their `out` is 8-bit.
struct QuantizeParams {
  TensorView x;    // [T, W]
  TensorView out;  // [T, W] 8-bit
};

class FamilyOperations {
 public:
  virtual ~FamilyOperations() = default;

  virtual void LayerNorm(const LayerNormParams&) = 0;
  virtual void AddScaled(const AddScaledParams&) = 0;
  virtual void Scale(const ScaleParams&) = 0;
  virtual void Gelu(const GeluParams&) = 0;
  virtual void Quantize(const QuantizeParams&) = 0;
  virtual void GatherColumns(const GatherColumnsParams&) = 0;
};

}  // namespace quire
