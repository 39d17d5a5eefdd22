// Decoder: the model of the llama-shaped families (checkpoint/families.h). All share one equation;
// they differ in which weights are present.
#pragma once

#include "engine/model/activations.h"
#include "engine/model/checkpoint/model_config.h"
#include "engine/model/checkpoint/tp.h"
#include "engine/model/decoder_weights.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

namespace quire {

class Decoder final : public Model {
 public:
  // The backend must outlive this.
  Decoder(const ModelConfig& config, TpInfo tp, DecoderWeights weights, Activations activations,
          Backend& backend);

  void Forward(const ModelInput& input, const KvCache& cache, TensorView logits) override;

 private:
  // Adds the sum of the ranks' x to the residual; x becomes its norm.
  void AddAndNorm(TensorView x, TensorView residual, TensorView weight);
  // `plan`: plan the step's attention first.
  void Attention(const DecoderLayer& layer, const ModelInput& input, const KvLayerView& kv,
                 const StepTensors& s, bool plan);
  PagedAttentionParams AttentionParams(const ModelInput& input, const KvLayerView& kv,
                                       const DecoderLayer& layer, const StepTensors& s) const;
  void FeedForward(const DecoderLayer& layer, const StepTensors& s);
  void Logits(const ModelInput& input, const StepTensors& s, TensorView logits);

  Backend& backend_;
  const DecoderWeights weights_;
  const Activations activations_;
  const int32_t num_heads_;  // of this rank
  const int32_t head_dim_;
  const float norm_eps_;
};

}  // namespace quire
