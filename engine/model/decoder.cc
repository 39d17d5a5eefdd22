// The equation of a decoder: h += attention(norm(h)); h += feed_forward(norm(h)), or both at once.
#include "engine/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace quire {

Decoder::Decoder(const ModelConfig& config, TpInfo tp, DecoderWeights weights,
                 Activations activations, Backend& backend)
    : backend_(backend),
      weights_(std::move(weights)),
      activations_(std::move(activations)),
      facts_(config.facts),
      gated_(config.names.gated()),
      num_heads_(static_cast<int32_t>(Shard(config.num_heads, tp).count)),
      num_kv_heads_(static_cast<int32_t>(KvShard(config.num_kv_heads, tp).count)),
      head_dim_(config.head_dim),
      norm_eps_(config.norm_eps) {}

void Decoder::Forward(const ModelInput& input, const KvCache& cache, TensorView logits) {
  StepTensors s = activations_.For(input.num_tokens, input.num_logit_rows);
  const bool few = input.num_logit_rows < input.num_tokens && !input.reads_tokens;
  Embed(input, s);
  // s.residual holds h; s.x holds this rank's part of a block's output until Join adds it.
  TensorView in = Begin(weights_.layers[0].input_norm, SumFor(weights_.layers[0].qkv, s));
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const NamedRange range(backend_.profiler(), "layer", static_cast<int64_t>(i));
    const DecoderLayer& layer = weights_.layers[i];
    const bool narrows = few && i + 1 == weights_.layers.size();
    if (i > 0) {
      in = Join(SumFor(layer.qkv, s), weights_.layers[i - 1].mlp_output_norm, layer.input_norm);
    }
    // The feed-forward first: attention's output may take the place of their common input.
    if (facts_.parallel_blocks && !narrows) FeedForward(layer, in, s, s.parallel);
    const KvLayerView kv = KvOf(cache, i);
    StoreKv(layer, in, input, kv, s);
    if (narrows && input.num_logit_rows == 0) return;
    Attend(i, input, kv, s);
    if (narrows) s = LogitRows(input, s);
    if (facts_.parallel_blocks) {
      if (narrows) {
        FeedForward(layer, Begin(layer.input_norm, SumFor(layer.gate_up, s)), s, s.parallel);
      }
      ProjectHeads(layer, s);
      backend_.AddScaled({.x = s.parallel, .scale = 1, .out = s.x});
    } else {
      ProjectHeads(layer, s);
      in = Join(SumFor(layer.gate_up, s), layer.attention_output_norm, layer.mlp_norm);
      FeedForward(layer, in, s, s.x);
    }
  }
  if (few) {
    Head(LastNorm(s.x, s.residual), logits);
  } else if (input.num_logit_rows > 0) {
    Logits(input.logit_rows, input.num_logit_rows, logits);
  }
}

Decoder::Sum Decoder::SumFor(const Linear& next, const StepTensors& s) {
  return {s.x, s.residual, next.eight_bit() ? s.narrow_in : s.x};
}

// Behind the last layer's attention nothing reads a token that needs no logits: most of a prompt
// is spared that layer's other products.
StepTensors Decoder::LogitRows(const ModelInput& input, const StepTensors& s) {
  StepTensors few = activations_.For(input.num_logit_rows, input.num_logit_rows);
  few.residual = few.row_residual;
  few.attention = few.row_attention;
  backend_.GatherRows({.x = s.residual, .rows = input.logit_rows, .out = few.residual});
  backend_.GatherRows({.x = s.attention, .rows = input.logit_rows, .out = few.attention});
  return few;
}

void Decoder::Embed(const ModelInput& input, const StepTensors& s) {
  weights_.vocabulary.Embed(backend_, input.token_ids, s.residual);
  if (facts_.embedding_scale == 1) return;
  backend_.Scale({.x = s.residual, .factor = facts_.embedding_scale, .cap = 0});
}

TensorView Decoder::Begin(const NormWeights& before, const Sum& sum) {
  const bool narrow = IsEightBit(sum.in.dtype);
  if (before.empty()) {
    if (!narrow) return sum.residual;
    backend_.Quantize({.x = sum.residual, .out = sum.in});
  } else if (narrow && facts_.norm == NormKind::kLayer) {
    Normalise(sum.residual, before, sum.x);
    backend_.Quantize({.x = sum.x, .out = sum.in});
  } else {
    Normalise(sum.residual, before, sum.in);
  }
  return sum.in;
}

TensorView Decoder::Join(const Sum& sum, const NormWeights& after, const NormWeights& before) {
  const auto& [x, residual, in] = sum;
  const bool adds_in_norm =
      facts_.norm == NormKind::kRms && facts_.residual_scale == 1 && !before.empty();
  const RmsNormParams norm{
      .x = x, .residual = residual, .weight = before.weight, .eps = norm_eps_, .out = in};
  if (adds_in_norm && after.empty()) {
    backend_.SumRmsNorm(norm);
    return in;
  }
  backend_.AllReduceSum(x);
  if (!after.empty()) Normalise(x, after, x);
  if (adds_in_norm) {
    backend_.RmsNorm(norm);
    return in;
  }
  backend_.AddScaled({.x = x, .scale = facts_.residual_scale, .out = residual});
  return Begin(before, sum);
}

void Decoder::Normalise(TensorView x, const NormWeights& norm, TensorView out) {
  if (facts_.norm == NormKind::kRms) {
    backend_.RmsNorm({.x = x, .residual = {}, .weight = norm.weight, .eps = norm_eps_, .out = out});
    return;
  }
  backend_.LayerNorm({.x = x,
                      .groups = 1,
                      .weight = norm.weight,
                      .bias = norm.bias,
                      .eps = norm_eps_,
                      .out = out});
}

// The norms of queries and keys that RopeStoreKv does not have.
void Decoder::NormaliseHeads(TensorView x, int32_t num_heads, TensorView weight) {
  if (facts_.qk_norm == QkNorm::kWidth) {
    backend_.RmsNorm({.x = x, .residual = {}, .weight = weight, .eps = norm_eps_, .out = x});
  } else if (facts_.qk_norm == QkNorm::kLayerHeads) {
    backend_.LayerNorm(
        {.x = x, .groups = num_heads, .weight = weight, .bias = {}, .eps = norm_eps_, .out = x});
  }
}

void Decoder::StoreKv(const DecoderLayer& layer, TensorView in, const ModelInput& input,
                      const KvLayerView& kv, const StepTensors& s) {
  layer.qkv.Apply(backend_, in, s.qkv, s.ordered);
  const int64_t q = int64_t{num_heads_} * head_dim_, k = int64_t{num_kv_heads_} * head_dim_;
  NormaliseHeads(s.qkv.Columns(0, q), num_heads_, layer.q_norm);
  NormaliseHeads(s.qkv.Columns(q, k), num_kv_heads_, layer.k_norm);
  const bool of_heads = facts_.qk_norm == QkNorm::kHead;
  backend_.RopeStoreKv({.qkv = s.qkv,
                        .num_heads = num_heads_,
                        .positions = input.positions,
                        .slots = input.slots,
                        .cos_sin = activations_.rope(layer.rotation),
                        .q_norm = of_heads ? layer.q_norm : TensorView(),
                        .k_norm = of_heads ? layer.k_norm : TensorView(),
                        .norm_eps = norm_eps_,
                        .kv = kv});
}

void Decoder::Attend(size_t index, const ModelInput& input, const KvLayerView& kv,
                     const StepTensors& s) {
  const PagedAttentionParams attention = AttentionParams(input, kv, weights_.layers[index], s);
  if (index == 0) PlanAttention(attention);
  backend_.PagedAttention(attention);
}

void Decoder::ProjectHeads(const DecoderLayer& layer, const StepTensors& s) {
  TensorView heads = s.attention;
  if (layer.o.eight_bit()) {
    heads = s.narrow.Columns(0, s.attention.dim[1]);
    backend_.Quantize({.x = s.attention, .out = heads});
  }
  layer.o.Apply(backend_, heads, s.x, s.ordered);
}

KvLayerView Decoder::KvOf(const KvCache& cache, size_t index) const {
  KvLayerView kv = cache.layer(static_cast<int32_t>(index));
  kv.k_scales = weights_.layers[index].k_scales.ptr<float>();
  kv.v_scales = weights_.layers[index].v_scales.ptr<float>();
  return kv;
}

// `first` is the first layer's attention; a plan differs by the window alone.
void Decoder::PlanAttention(const PagedAttentionParams& first) {
  backend_.PlanAttention(first);
  const auto other = std::ranges::find_if(
      weights_.layers, [&](const DecoderLayer& layer) { return layer.window != first.window; });
  if (other == weights_.layers.end()) return;
  PagedAttentionParams params = first;
  params.window = other->window;
  backend_.PlanAttention(params);
}

PagedAttentionParams Decoder::AttentionParams(const ModelInput& input, const KvLayerView& kv,
                                              const DecoderLayer& layer,
                                              const StepTensors& s) const {
  const float usual_scale = 1.0f / std::sqrt(static_cast<float>(head_dim_));
  return {.q = s.qkv.Columns(0, s.attention.dim[1]),
          .kv = kv,
          .num_heads = num_heads_,
          .num_seqs = input.num_seqs,
          .query_begin = input.query_begin,
          .context_len = input.context_len,
          .table_row = input.table_row,
          .block_table = input.block_table,
          .table_stride = input.table_stride,
          .scale = facts_.attention_scale == 0 ? usual_scale : facts_.attention_scale,
          .soft_cap = facts_.attention_soft_cap,
          .window = layer.window,
          .max_query_len = input.max_query_len,
          .out = s.attention};
}

void Decoder::FeedForward(const DecoderLayer& layer, TensorView in, const StepTensors& s,
                          TensorView out) {
  const TensorView gated = layer.down.eight_bit() ? s.narrow.Columns(0, s.gated.dim[1]) : s.gated;
  layer.gate_up.Apply(backend_, in, s.gate_up, s.ordered);
  if (facts_.activation == Activation::kSilu) {
    backend_.SiluMul({.gate_up = s.gate_up, .out = gated});
  } else {
    backend_.Gelu({.x = s.gate_up, .gated = gated_, .out = gated});
  }
  layer.down.Apply(backend_, gated, out, s.ordered);
}

// Only the rows that are asked for pass the last norm. They are copies: the step's tensors stay as
// the layers left them. How many tokens the step had is not known here: it may have been replayed.
TensorView Decoder::Hidden(const int32_t* rows, int32_t num_rows) {
  const StepTensors s = activations_.For(activations_.max_tokens(), num_rows);
  backend_.GatherRows({.x = s.x, .rows = rows, .out = s.row_x});
  backend_.GatherRows({.x = s.residual, .rows = rows, .out = s.row_residual});
  return LastNorm(s.row_x, s.row_residual);
}

TensorView Decoder::LastNorm(TensorView x, TensorView residual) {
  return Join({x, residual, x}, weights_.layers.back().mlp_output_norm, weights_.final_norm);
}

void Decoder::Logits(const int32_t* rows, int32_t num_rows, TensorView logits) {
  Head(Hidden(rows, num_rows), logits);
}

void Decoder::Head(TensorView hidden, TensorView logits) {
  weights_.vocabulary.Logits(backend_, hidden, logits);
  if (facts_.logit_scale == 1 && facts_.logit_soft_cap == 0) return;
  backend_.Scale({.x = logits, .factor = facts_.logit_scale, .cap = facts_.logit_soft_cap});
}

}  // namespace quire
