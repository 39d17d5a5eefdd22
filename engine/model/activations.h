// Activations: the memory that a decoder computes in, allocated once for the largest step, and the
// rotary tables.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint/model_config.h"
#include "engine/model/checkpoint/tp.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

namespace quire {

// The tensors of one step: T tokens, R rows that need logits; widths are this rank's, I padded
// (PaddedWidth). `qkv` shares its memory with `gate_up`, and `attention` with `gated`: attention
// has ended when the feed-forward begins.
struct StepTensors {
  TensorView residual;   // [T, H]
  TensorView x;          // [T, H] input and output of each block
  TensorView parallel;   // [T, H] output of a feed-forward beside attention; else empty
  TensorView qkv;        // [T, (Q + 2K) * D]
  TensorView attention;  // [T, Q * D]
  TensorView gate_up;    // [T, 2I], or [T, I] where the activation has no gate
  TensorView gated;      // [T, I]
  // Inputs of products of 8-bit weights, else empty: that of the first products of a block, and
  // that of the second.
  TensorView narrow_in;  // [T, H] 8-bit
  TensorView narrow;     // [T, max(Q * D, I)] 8-bit
  // Of matrices whose columns are sorted, else empty: their inputs in that order.
  TensorView ordered;  // [T, max(H, Q * D, I)]
  // Copies of the rows that need logits.
  TensorView row_residual;   // [R, H]
  TensorView row_x;          // [R, H]
  TensorView row_attention;  // [R, Q * D]
};

// The rotary tables, by Rotation.
inline constexpr size_t kRotations = 3;
using RopeTables = std::array<TensorView, kRotations>;

class Activations {
 public:
  // RESOURCE_EXHAUSTED with the size when the device has too little memory.
  static absl::StatusOr<Activations> Create(const ModelConfig& config, TpInfo tp,
                                            const ModelOptions& options, Backend& backend);
  // Device bytes that Create will take.
  static int64_t TotalBytes(const ModelConfig& config, TpInfo tp, const ModelOptions& options);

  // Views for a step of `tokens` and `rows`, which must fit the options.
  StepTensors For(int32_t tokens, int32_t rows) const;
  // Tokens of the largest step.
  int32_t max_tokens() const { return static_cast<int32_t>(largest_.x.dim[0]); }
  // [max_model_len, D], in the layout of RopeStoreKvParams; only those that a layer uses.
  const TensorView& rope(Rotation rotation) const { return ropes_[static_cast<size_t>(rotation)]; }

 private:
  Buffer storage_;
  StepTensors largest_;
  RopeTables ropes_;
};

}  // namespace quire
