// DecoderWeights: the weights of a llama-shaped decoder on one rank, named as in the equation of
// decoder.cc, each assembled from slices of checkpoint tensors.
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

struct DecoderLayer {
  TensorView input_norm;  // [H]
  Linear qkv;             // q, k and v of this rank's heads, stacked; outputs split
  TensorView q_norm;      // [D] or empty
  TensorView k_norm;      // [D] or empty
  Linear o;               // inputs split
  TensorView post_norm;   // [H]
  Linear gate_up;         // gate and up of this rank's slice, stacked; outputs split
  Linear down;            // inputs split
  int32_t window = 0;     // 0: unlimited
};

struct DecoderWeights {
  Vocabulary vocabulary;
  std::vector<DecoderLayer> layers;
  TensorView final_norm;  // [H]
  Weights storage;

  static absl::StatusOr<DecoderWeights> Load(const std::string& dir, const ModelConfig& config,
                                             TpInfo tp, const ModelOptions& options,
                                             Backend& backend);
  // Device bytes that Load will take.
  static int64_t TotalBytes(const ModelConfig& config, TpInfo tp, const ModelOptions& options);
};

}  // namespace quire
