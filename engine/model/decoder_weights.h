// DecoderWeights: the weights of a decoder on one rank, named as in the equation of decoder.cc,
// each assembled from slices of checkpoint tensors. The rows of queries and keys are in the order
// that rope.h wants.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint/model_config.h"
#include "engine/model/checkpoint/tp.h"
#include "engine/model/checkpoint/weights.h"
#include "engine/model/linear.h"
#include "engine/model/model.h"

namespace quire {

// The weights of a norm. Empty: the family has no norm here.
struct NormWeights {
  TensorView weight;
  TensorView bias;  // or empty

  bool empty() const { return weight.empty(); }
};

struct DecoderLayer {
  NormWeights input_norm;  // [H], before attention
  Linear qkv;              // q, k and v of this rank's heads, stacked; outputs split
  TensorView q_norm;       // as facts.qk_norm says, of this rank's heads
  TensorView k_norm;
  TensorView k_scales;  // of this rank's key/value heads, of an 8-bit cache; else empty
  TensorView v_scales;
  Linear o;                           // inputs split
  NormWeights attention_output_norm;  // [H]
  NormWeights mlp_norm;               // [H], before the feed-forward
  Linear gate_up;                     // gate, if any, and up of this rank's slice, each padded
  Linear down;                        // inputs split and padded (PaddedWidth)
  NormWeights mlp_output_norm;        // [H]
  int32_t window = 0;                 // 0: unlimited
  Rotation rotation = Rotation::kGlobal;
};

struct DecoderWeights {
  Vocabulary vocabulary;
  std::vector<DecoderLayer> layers;
  NormWeights final_norm;  // [H]
  Weights storage;

  static absl::StatusOr<DecoderWeights> Load(const std::string& dir, const ModelConfig& config,
                                             TpInfo tp, const ModelOptions& options,
                                             Backend& backend);
  // The part of Load that reads headers only: errors of Weights::Check.
  static absl::Status Check(const Checkpoint& checkpoint, const ModelConfig& config, TpInfo tp,
                            const ModelOptions& options);
  // Device bytes that Load will take.
  static int64_t TotalBytes(const ModelConfig& config, TpInfo tp, const ModelOptions& options);
};

}  // namespace quire
