// Decoder: the model of all families whose layers are attention and a feed-forward
// (checkpoint/families.h). They share one equation and differ in its facts
// (checkpoint/decoder_facts.h) and in which weights are present.
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
  TensorView Hidden(const int32_t* rows, int32_t num_rows) override;
  void Logits(const int32_t* rows, int32_t num_rows, TensorView logits) override;

 private:
  // A block's output, of which each rank has a part, the residual that it is added to, and the
  // place of the next block's input: x itself, or 8-bit if the next product is.
  struct Sum {
    TensorView x;
    TensorView residual;
    TensorView in;
  };

  static Sum SumFor(const Linear& next, const StepTensors& s);
  void Embed(const ModelInput& input, const StepTensors& s);
  // The input of the first block.
  TensorView Begin(const NormWeights& before, const Sum& sum);
  // Sums the ranks' x, normalises that by `after`, adds it to the residual, and returns the input
  // of the next block: the residual's norm by `before`. Either norm may be missing.
  TensorView Join(const Sum& sum, const NormWeights& after, const NormWeights& before);
  void Normalise(TensorView x, const NormWeights& norm, TensorView out);
  void NormaliseHeads(TensorView x, int32_t num_heads, TensorView weight);
  // Queries, keys and values of `in`; keys and values go to the cache.
  void StoreKv(const DecoderLayer& layer, TensorView in, const ModelInput& input,
               const KvLayerView& kv, const StepTensors& s);
  // Layer `index`'s attention: from s.qkv to s.attention.
  void Attend(size_t index, const ModelInput& input, const KvLayerView& kv, const StepTensors& s);
  // From s.attention to s.x.
  void ProjectHeads(const DecoderLayer& layer, const StepTensors& s);
  // The tensors of a step of the R rows that need logits alone: residual and attention are copied
  // from s, the others are free.
  StepTensors LogitRows(const ModelInput& input, const StepTensors& s);
  // Layer `index`'s keys and values, with their scales.
  KvLayerView KvOf(const KvCache& cache, size_t index) const;
  void PlanAttention(const PagedAttentionParams& first);
  PagedAttentionParams AttentionParams(const ModelInput& input, const KvLayerView& kv,
                                       const DecoderLayer& layer, const StepTensors& s) const;
  void FeedForward(const DecoderLayer& layer, TensorView in, const StepTensors& s, TensorView out);
  // The last block's output, added to the residual and normalised; it takes x's place.
  TensorView LastNorm(TensorView x, TensorView residual);
  void Head(TensorView hidden, TensorView logits);

  Backend& backend_;
  const DecoderWeights weights_;
  const Activations activations_;
  const DecoderFacts facts_;
  const bool gated_;
  const int32_t num_heads_;  // of this rank
  const int32_t num_kv_heads_;
  const int32_t head_dim_;
  const float norm_eps_;
};

}  // namespace quire
