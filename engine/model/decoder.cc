// The equation of a llama-shaped decoder: h += attention(norm(h)); h += feed_forward(norm(h)).
#include "engine/model/decoder.h"

#include <cmath>
#include <utility>

namespace quire {

Decoder::Decoder(const ModelConfig& config, TpInfo tp, DecoderWeights weights,
                 Activations activations, Backend& backend)
    : backend_(backend),
      weights_(std::move(weights)),
      activations_(std::move(activations)),
      num_heads_(static_cast<int32_t>(Shard(config.num_heads, tp).count)),
      head_dim_(config.head_dim),
      norm_eps_(config.norm_eps) {}

void Decoder::Forward(const ModelInput& input, const KvCache& cache, TensorView logits) {
  const StepTensors s = activations_.For(input.num_tokens, input.num_logit_rows);
  weights_.vocabulary.Embed(backend_, input.token_ids, s.residual);
  // s.residual holds h; s.x holds this rank's part of a block's output until the next norm sums the
  // parts and adds them. The first norm adds nothing.
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const NamedRange range(backend_.profiler(), "layer", static_cast<int64_t>(i));
    const DecoderLayer& layer = weights_.layers[i];
    if (i == 0) {
      backend_.RmsNorm({.x = s.residual, .weight = layer.input_norm, .eps = norm_eps_, .out = s.x});
    } else {
      AddAndNorm(s.x, s.residual, layer.input_norm);
    }
    const bool plan = i == 0 || layer.window != weights_.layers[i - 1].window;
    Attention(layer, input, cache.layer(static_cast<int32_t>(i)), s, plan);
    AddAndNorm(s.x, s.residual, layer.post_norm);
    FeedForward(layer, s);
  }
  if (input.num_logit_rows > 0) Logits(input, s, logits);
}

void Decoder::AddAndNorm(TensorView x, TensorView residual, TensorView weight) {
  backend_.SumRmsNorm({.x = x, .residual = residual, .weight = weight, .eps = norm_eps_, .out = x});
}

void Decoder::Attention(const DecoderLayer& layer, const ModelInput& input, const KvLayerView& kv,
                        const StepTensors& s, bool plan) {
  layer.qkv.Apply(backend_, s.x, s.qkv);
  backend_.RopeStoreKv({.qkv = s.qkv,
                        .num_heads = num_heads_,
                        .positions = input.positions,
                        .slots = input.slots,
                        .cos_sin = activations_.rope(),
                        .q_norm = layer.q_norm,
                        .k_norm = layer.k_norm,
                        .norm_eps = norm_eps_,
                        .kv = kv});
  const PagedAttentionParams attention = AttentionParams(input, kv, layer, s);
  if (plan) backend_.PlanAttention(attention);
  backend_.PagedAttention(attention);
  layer.o.Apply(backend_, s.attention, s.x);
}

PagedAttentionParams Decoder::AttentionParams(const ModelInput& input, const KvLayerView& kv,
                                              const DecoderLayer& layer,
                                              const StepTensors& s) const {
  return {.q = s.qkv.Columns(0, s.attention.dim[1]),
          .kv = kv,
          .num_heads = num_heads_,
          .num_seqs = input.num_seqs,
          .query_begin = input.query_begin,
          .context_len = input.context_len,
          .table_row = input.table_row,
          .block_table = input.block_table,
          .table_stride = input.table_stride,
          .scale = 1.0f / std::sqrt(static_cast<float>(head_dim_)),
          .window = layer.window,
          .max_query_len = input.max_query_len,
          .out = s.attention};
}

void Decoder::FeedForward(const DecoderLayer& layer, const StepTensors& s) {
  layer.gate_up.Apply(backend_, s.x, s.gate_up);
  backend_.SiluMul({.gate_up = s.gate_up, .out = s.gated});
  layer.down.Apply(backend_, s.gated, s.x);
}

// Only the rows that need logits pass the last norm and the head.
void Decoder::Logits(const ModelInput& input, const StepTensors& s, TensorView logits) {
  backend_.GatherRows({.x = s.x, .rows = input.logit_rows, .out = s.row_x});
  backend_.GatherRows({.x = s.residual, .rows = input.logit_rows, .out = s.row_residual});
  AddAndNorm(s.row_x, s.row_residual, weights_.final_norm);
  weights_.vocabulary.Logits(backend_, s.row_x, logits);
}

}  // namespace quire
