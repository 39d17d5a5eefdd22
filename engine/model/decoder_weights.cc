// Which stored tensors make up the decoder, and which slices of them a rank holds.
#include "engine/model/decoder_weights.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/checkpoint/safetensors.h"

namespace quire {
namespace {

// Norm weights are a few thousandths of the bytes and keep full precision.
constexpr DType kNormDType = DType::kF32;

// Writes the specs in the order in which Assemble takes their tensors.
class SpecWriter {
 public:
  SpecWriter(const ModelConfig& config, TpInfo tp, const ModelOptions& options)
      : config_(config),
        tp_(tp),
        dtype_(options.weight_dtype),
        bias_dtype_(options.activation_dtype) {}

  std::vector<WeightSpec> Write() {
    VocabularyRows("model.embed_tokens.weight", true);
    for (int32_t i = 0; i < config_.num_layers; ++i) Layer(absl::StrCat("model.layers.", i, "."));
    Norm("model.norm.weight", config_.hidden_size, true);
    VocabularyRows("lm_head.weight", !config_.tie_embeddings);
    return std::move(specs_);
  }

 private:
  struct Output {
    std::string name;
    int64_t size;
    ShardRange shard;
  };

  void Layer(const std::string& prefix) {
    const int64_t q = int64_t{config_.num_heads} * config_.head_dim;
    const int64_t kv = int64_t{config_.num_kv_heads} * config_.head_dim;
    const int64_t mlp = config_.intermediate_size;
    const ShardRange kv_heads = KvShard(config_.num_kv_heads, tp_);
    const ShardRange kv_shard = {kv_heads.begin * config_.head_dim,
                                 kv_heads.count * config_.head_dim};
    const ShardRange q_shard = Shard(q, tp_), mlp_shard = Shard(mlp, tp_);
    const std::string attention = prefix + "self_attn.";
    const std::string feed_forward = prefix + "mlp.";
    Norm(prefix + "input_layernorm.weight", config_.hidden_size, true);
    Columns({{attention + "q_proj", q, q_shard},
             {attention + "k_proj", kv, kv_shard},
             {attention + "v_proj", kv, kv_shard}},
            config_.qkv_bias);
    Norm(attention + "q_norm.weight", config_.head_dim, config_.qk_norm);
    Norm(attention + "k_norm.weight", config_.head_dim, config_.qk_norm);
    Rows(attention + "o_proj", q, config_.o_bias);
    Norm(prefix + "post_attention_layernorm.weight", config_.hidden_size, true);
    Columns(
        {{feed_forward + "gate_proj", mlp, mlp_shard}, {feed_forward + "up_proj", mlp, mlp_shard}},
        config_.mlp_bias);
    Rows(feed_forward + "down_proj", mlp, config_.mlp_bias);
  }

  void Norm(const std::string& name, int64_t size, bool present) {
    WeightSpec spec{.dtype = kNormDType, .dummy = 1};
    if (present) {
      spec.rows = size;
      spec.parts.push_back({.name = name, .shape = {size}, .rows = {0, size}});
    }
    specs_.push_back(std::move(spec));
  }

  // A matrix and a bias whose outputs are split: the rank's slice of each, stacked.
  void Columns(const std::vector<Output>& outputs, bool has_bias) {
    const int64_t hidden = config_.hidden_size;
    WeightSpec weight{.dtype = dtype_, .columns = hidden};
    WeightSpec bias{.dtype = bias_dtype_};
    for (const auto& [name, size, shard] : outputs) {
      weight.rows += shard.count;
      weight.parts.push_back({.name = name + ".weight",
                              .shape = {size, hidden},
                              .rows = shard,
                              .columns = {0, hidden}});
      if (!has_bias) continue;
      bias.rows += shard.count;
      bias.parts.push_back({.name = name + ".bias", .shape = {size}, .rows = shard});
    }
    specs_.push_back(std::move(weight));
    specs_.push_back(std::move(bias));
  }

  // A matrix whose inputs are split; its bias is rank 0's.
  void Rows(const std::string& name, int64_t inputs, bool has_bias) {
    const int64_t hidden = config_.hidden_size;
    const ShardRange shard = Shard(inputs, tp_);
    WeightSpec weight{.dtype = dtype_, .rows = hidden, .columns = shard.count};
    weight.parts.push_back({.name = name + ".weight",
                            .shape = {hidden, inputs},
                            .rows = {0, hidden},
                            .columns = shard});
    WeightSpec bias{.dtype = bias_dtype_};
    if (has_bias) {
      bias.rows = tp_.rank == 0 ? hidden : 0;
      bias.parts.push_back({.name = name + ".bias", .shape = {hidden}, .rows = {0, bias.rows}});
    }
    specs_.push_back(std::move(weight));
    specs_.push_back(std::move(bias));
  }

  void VocabularyRows(const std::string& name, bool present) {
    const int64_t hidden = config_.hidden_size;
    const int64_t local = Vocabulary::LocalRows(config_.vocab_size, tp_);
    const int64_t begin = std::min<int64_t>(tp_.rank * local, config_.vocab_size);
    const int64_t count = std::min(local, config_.vocab_size - begin);
    WeightSpec spec{.dtype = dtype_, .columns = hidden};
    if (present) {
      spec.rows = local;
      spec.parts.push_back({.name = name,
                            .shape = {config_.vocab_size, hidden},
                            .rows = {begin, count},
                            .columns = {0, hidden}});
    }
    specs_.push_back(std::move(spec));
  }

  const ModelConfig& config_;
  const TpInfo tp_;
  const DType dtype_;
  const DType bias_dtype_;
  std::vector<WeightSpec> specs_;
};

// Takes the tensors in the order of SpecWriter.
DecoderWeights Assemble(const ModelConfig& config, TpInfo tp, Weights storage) {
  size_t at = 0;
  const auto next = [&storage, &at]() { return storage[at++]; };
  const auto next_linear = [&next]() {
    const TensorView weight = next();
    return Linear(weight, next());
  };
  DecoderWeights out;
  const TensorView embedding = next();
  for (int32_t i = 0; i < config.num_layers; ++i) {
    DecoderLayer layer;
    layer.input_norm = next();
    layer.qkv = next_linear();
    layer.q_norm = next();
    layer.k_norm = next();
    layer.o = next_linear();
    layer.post_norm = next();
    layer.gate_up = next_linear();
    layer.down = next_linear();
    layer.window = config.layer_is_sliding[i] ? config.sliding_window : 0;
    out.layers.push_back(layer);
  }
  out.final_norm = next();
  const TensorView head = next();
  CHECK_EQ(at, storage.size());
  out.vocabulary = Vocabulary(embedding, config.tie_embeddings ? embedding : head, tp);
  out.storage = std::move(storage);
  return out;
}

}  // namespace

absl::StatusOr<DecoderWeights> DecoderWeights::Load(const std::string& dir,
                                                    const ModelConfig& config, TpInfo tp,
                                                    const ModelOptions& options, Backend& backend) {
  const std::vector<WeightSpec> specs = SpecWriter(config, tp, options).Write();
  if (options.dummy_weights) {
    ASSIGN_OR_RETURN(Weights storage, Weights::MakeDummy(specs, backend));
    return Assemble(config, tp, std::move(storage));
  }
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(dir));
  // Rotary tables, which old converters stored although the config implies them, and a head that
  // repeats a tied embedding.
  const auto ignorable = [&config](const std::string& name) {
    return name.ends_with("rotary_emb.inv_freq") ||
           (config.tie_embeddings && name == "lm_head.weight");
  };
  const WeightReading how{.threads = options.load_threads, .in_place = options.weights_in_place};
  ASSIGN_OR_RETURN(Weights storage, Weights::Load(checkpoint, specs, ignorable, how, backend));
  return Assemble(config, tp, std::move(storage));
}

int64_t DecoderWeights::TotalBytes(const ModelConfig& config, TpInfo tp,
                                   const ModelOptions& options) {
  return Weights::TotalBytes(SpecWriter(config, tp, options).Write());
}

}  // namespace quire
