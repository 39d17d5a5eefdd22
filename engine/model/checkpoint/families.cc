// The table of families; a field that a row leaves out has the default of Family.
#include "engine/model/checkpoint/families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "engine/model/checkpoint/model_config.h"
#include "engine/model/config/config_reader.h"

namespace quire {
namespace {

// Bounds of scales: far beyond any model, and products of them stay finite.
constexpr double kLeastScale = 1e-6, kMostScale = 1e6;
constexpr int64_t kMaxPosition = int64_t{1} << 27;

float ReadScale(ConfigReader& in, const char* key, double fallback) {
  return static_cast<float>(in.OptionalNumber(key, kLeastScale, kMostScale).value_or(fallback));
}

// Absent means the family's default, null means none.
float ReadSoftCap(ConfigReader& in, const char* key, float fallback) {
  if (in.Contains(key) && !in.Has(key)) return 0;
  return ReadScale(in, key, fallback);
}

void ReadGranite(ConfigReader& in, ModelConfig& out) {
  out.facts.embedding_scale = ReadScale(in, "embedding_multiplier", 1);
  out.facts.residual_scale = ReadScale(in, "residual_multiplier", 1);
  out.facts.attention_scale = ReadScale(in, "attention_multiplier", 1);
  out.facts.logit_scale = 1 / ReadScale(in, "logits_scaling", 1);
}

void ReadGemma(ConfigReader& in, ModelConfig& out) {
  if (in.Bool("use_bidirectional_attention", false)) {
    in.Refuse("use_bidirectional_attention", "false: a causal language model");
  }
  out.facts.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(out.hidden_size)));
  const double scalar =
      in.OptionalNumber("query_pre_attn_scalar", kLeastScale, kMostScale).value_or(256);
  out.facts.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
}

void ReadGemma2(ConfigReader& in, ModelConfig& out) {
  ReadGemma(in, out);
  out.facts.attention_soft_cap = ReadSoftCap(in, "attn_logit_softcapping", 50);
  out.facts.logit_soft_cap = ReadSoftCap(in, "final_logit_softcapping", 30);
}

void ReadGemma3(ConfigReader& in, ModelConfig& out) {
  ReadGemma(in, out);
  out.facts.attention_soft_cap = ReadSoftCap(in, "attn_logit_softcapping", 0);
  out.facts.logit_soft_cap = ReadSoftCap(in, "final_logit_softcapping", 0);
}

void ReadCohere(ConfigReader& in, ModelConfig& out) {
  out.facts.logit_scale = ReadScale(in, "logit_scale", 0.0625);
  if (in.Bool("use_qk_norm", false)) out.facts.qk_norm = QkNorm::kLayerHeads;
  // Command R has more positions here than in max_position_embeddings, its default.
  const std::optional<int64_t> trained = in.OptionalInt("model_max_length", 1, kMaxPosition);
  if (!trained.has_value()) return;
  out.longest_position = std::max(out.longest_position, static_cast<int32_t>(*trained));
}

void ReadStableLm(ConfigReader& in, ModelConfig& out) {
  out.facts.parallel_blocks = in.Bool("use_parallel_residual", false);
  if (in.Bool("qk_layernorm", false)) out.facts.qk_norm = QkNorm::kLayerHeads;
}

void ReadSmolLm3(ConfigReader& in, ModelConfig&) {
  if (in.Bool("use_sliding_window", false) && !in.Has("layer_types")) {
    in.Refuse("use_sliding_window", "false, or true with \"layer_types\"");
  }
}

// Norms of the blocks' outputs alone.
constexpr TensorNames kOutputNorms = {
    .input_norm = "",
    .attention_output_norm = "post_attention_layernorm",
    .mlp_norm = "",
    .mlp_output_norm = "post_feedforward_layernorm",
};
constexpr TensorNames kGemmaNames = {
    .attention_output_norm = "post_attention_layernorm",
    .mlp_norm = "pre_feedforward_layernorm",
    .mlp_output_norm = "post_feedforward_layernorm",
    .skipped = {"vision_tower.", "multi_modal_projector."},
};
// Of the text part of a model that sees: as transformers writes them, and as its modules have been
// called since 4.52, which others write.
constexpr TensorNames TextPartOf(TensorNames names) {
  names.root = "language_model.model.";
  names.head = "language_model.lm_head";
  names.other_root = "model.language_model.";
  names.skipped = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                   "model.multi_modal_projector."};
  return names;
}
constexpr ConfigDefaults kGlmDefaults = {
    .kv_heads = 2,
    .head_dim = 128,
    .max_position = 131072,
    .norm_eps = 1.5625e-7,
    .rotary_factor = 0.5,
};

constexpr ConfigDefaults kGemma3Defaults = {
    .num_heads = 8,
    .kv_heads = 4,
    .head_dim = 256,
    .vocab_size = 262208,
    .max_position = 131072,
    .sliding_window = 4096,
    .window_pattern = 6,
    .rope_theta = 1e6,
    .tie_embeddings = true,
    .activation = "gelu_pytorch_tanh",
};

constexpr std::array kFamilies = {
    Family{
        .architecture = "LlamaForCausalLM",
        .model_type = "llama",
        .qkv_bias = {"attention_bias"},
        .o_bias = {"attention_bias"},
        .mlp_bias = {"mlp_bias"},
        .defaults = {.max_position = 2048},
    },
    Family{
        .architecture = "MistralForCausalLM",
        .model_type = "mistral",
        .window = WindowRule::kAllLayers,
        .defaults = {.kv_heads = 8, .max_position = 131072, .sliding_window = 4096},
    },
    // Mistral Small 3.1 and later: the text part of a model that sees.
    Family{
        .architecture = "Mistral3ForConditionalGeneration",
        .model_type = "mistral3",
        .text_model_type = "mistral",
        .window = WindowRule::kAllLayers,
        .keys = {.text = "text_config"},
        .defaults = {.kv_heads = 8, .max_position = 131072, .sliding_window = 4096},
        .names = TextPartOf({}),
    },
    Family{
        .architecture = "Qwen2ForCausalLM",
        .model_type = "qwen2",
        .window = WindowRule::kByLayer,
        .qkv_bias = {nullptr, true},
        .defaults = {.kv_heads = 32, .max_position = 32768, .sliding_window = 4096},
    },
    Family{
        .architecture = "Qwen3ForCausalLM",
        .model_type = "qwen3",
        .window = WindowRule::kByLayer,
        .qkv_bias = {"attention_bias"},
        .o_bias = {"attention_bias"},
        .facts = {.qk_norm = QkNorm::kHead},
        .defaults =
            {.kv_heads = 32, .head_dim = 128, .max_position = 32768, .sliding_window = 4096},
    },
    // Its extra tensors guess further tokens.
    Family{
        .architecture = "MiMoForCausalLM",
        .model_type = "mimo",
        .window = WindowRule::kByLayer,
        .qkv_bias = {nullptr, true},
        .defaults = {.kv_heads = 32, .max_position = 32768, .sliding_window = 4096},
        .names = {.skipped = {"model.mtp_layers."}},
    },
    Family{
        .architecture = "GraniteForCausalLM",
        .model_type = "granite",
        .qkv_bias = {"attention_bias"},
        .o_bias = {"attention_bias"},
        .mlp_bias = {"mlp_bias"},
        .read = ReadGranite,
        .defaults = {.max_position = 2048},
    },
    Family{
        .architecture = "Phi3ForCausalLM",
        .model_type = "phi3",
        .window = WindowRule::kAllLayers,
        .partial_rotation = true,
        .defaults = {.max_position = 4096, .norm_eps = 1e-5},
        .names = {.qkv = "self_attn.qkv_proj", .gate_up = "mlp.gate_up_proj"},
    },
    Family{
        .architecture = "Olmo2ForCausalLM",
        .model_type = "olmo2",
        .qkv_bias = {"attention_bias"},
        .o_bias = {"attention_bias"},
        .facts = {.qk_norm = QkNorm::kWidth},
        .defaults = {.max_position = 2048, .norm_eps = 1e-5},
        .names = kOutputNorms,
    },
    Family{
        .architecture = "SmolLM3ForCausalLM",
        .model_type = "smollm3",
        .window = WindowRule::kByLayer,
        .rotation = RotationRule::kNamedLayers,
        .qkv_bias = {"attention_bias"},
        .o_bias = {"attention_bias"},
        .mlp_bias = {"mlp_bias"},
        .read = ReadSmolLm3,
        .defaults =
            {.kv_heads = 4, .max_position = 32768, .rope_theta = 2e6, .tie_embeddings = true},
    },
    Family{
        .architecture = "SeedOssForCausalLM",
        .model_type = "seed_oss",
        .qkv_bias = {"attention_bias", true},
        .o_bias = {"attention_out_bias"},
        .mlp_bias = {"mlp_bias"},
        .defaults = {.kv_heads = 8, .head_dim = 128, .max_position = 524288},
    },
    Family{
        .architecture = "InternLM3ForCausalLM",
        .model_type = "internlm3",
        .qkv_bias = {"qkv_bias"},
        .o_bias = {"bias"},
        .mlp_bias = {"bias"},
        .defaults = {.kv_heads = 2, .head_dim = 128, .max_position = 32768, .norm_eps = 1e-5},
    },
    Family{
        .architecture = "ExaoneForCausalLM",
        .model_type = "exaone",
        .keys = {.num_layers = "num_layers",
                 .norm_eps = "layer_norm_epsilon",
                 .activation = "activation_function"},
        .defaults = {.max_position = 2048, .norm_eps = 1e-5},
        .names = {.root = "transformer.",
                  .embedding = "wte",
                  .layers = "h.",
                  .final_norm = "ln_f",
                  .input_norm = "ln_1",
                  .q = "attn.attention.q_proj",
                  .k = "attn.attention.k_proj",
                  .v = "attn.attention.v_proj",
                  .o = "attn.attention.out_proj",
                  .mlp_norm = "ln_2",
                  .gate = "mlp.c_fc_0",
                  .up = "mlp.c_fc_1",
                  .down = "mlp.c_proj"},
    },
    Family{
        .architecture = "Exaone4ForCausalLM",
        .model_type = "exaone4",
        .window = WindowRule::kPattern,
        .rotation = RotationRule::kWindowLayers,
        .facts = {.qk_norm = QkNorm::kHead},
        .defaults = {.kv_heads = 32,
                     .max_position = 2048,
                     .sliding_window = 4096,
                     .window_pattern = 4,
                     .norm_eps = 1e-5},
        .names = kOutputNorms,
    },
    Family{
        .architecture = "Gemma2ForCausalLM",
        .model_type = "gemma2",
        .window = WindowRule::kPattern,
        .qkv_bias = {"attention_bias"},
        .o_bias = {"attention_bias"},
        .facts = {.norm_offset = 1},
        .read = ReadGemma2,
        .keys = {.activation = "hidden_activation"},
        .defaults = {.num_heads = 8,
                     .kv_heads = 4,
                     .head_dim = 256,
                     .max_position = 8192,
                     .sliding_window = 4096,
                     .window_pattern = 2,
                     .tie_embeddings = true,
                     .activation = "gelu_pytorch_tanh"},
        .names = kGemmaNames,
    },
    Family{
        .architecture = "Gemma3ForCausalLM",
        .model_type = "gemma3_text",
        .window = WindowRule::kPattern,
        .rotation = RotationRule::kLocalWindows,
        .qkv_bias = {"attention_bias"},
        .o_bias = {"attention_bias"},
        .facts = {.norm_offset = 1, .qk_norm = QkNorm::kHead},
        .read = ReadGemma3,
        .keys = {.activation = "hidden_activation"},
        .defaults = kGemma3Defaults,
        .names = kGemmaNames,
    },
    // The text part of a model that sees.
    Family{
        .architecture = "Gemma3ForConditionalGeneration",
        .model_type = "gemma3",
        .text_model_type = "gemma3_text",
        .window = WindowRule::kPattern,
        .rotation = RotationRule::kLocalWindows,
        .qkv_bias = {"attention_bias"},
        .o_bias = {"attention_bias"},
        .facts = {.norm_offset = 1, .qk_norm = QkNorm::kHead},
        .read = ReadGemma3,
        .keys = {.activation = "hidden_activation", .text = "text_config"},
        .defaults = kGemma3Defaults,
        .names = TextPartOf(kGemmaNames),
    },
    Family{
        .architecture = "GlmForCausalLM",
        .model_type = "glm",
        .partial_rotation = true,
        .interleaved_rotation = true,
        .qkv_bias = {"attention_bias", true},
        .defaults = kGlmDefaults,
        .names = {.gate_up = "mlp.gate_up_proj"},
    },
    Family{
        .architecture = "Glm4ForCausalLM",
        .model_type = "glm4",
        .partial_rotation = true,
        .interleaved_rotation = true,
        .qkv_bias = {"attention_bias", true},
        .defaults = kGlmDefaults,
        .names = {.attention_output_norm = "post_self_attn_layernorm",
                  .gate_up = "mlp.gate_up_proj",
                  .mlp_output_norm = "post_mlp_layernorm"},
    },
    Family{
        .architecture = "StableLmForCausalLM",
        .model_type = "stablelm",
        .partial_rotation = true,
        .qkv_bias = {"use_qkv_bias"},
        .facts = {.norm = NormKind::kLayer, .norm_bias = true},
        .read = ReadStableLm,
        .keys = {.norm_eps = "layer_norm_eps"},
        .defaults = {.kv_heads = 32, .max_position = 4096, .norm_eps = 1e-5, .rotary_factor = 0.25},
        .names = {.q_norm = "self_attn.q_layernorm.norms.",
                  .k_norm = "self_attn.k_layernorm.norms.",
                  .norm_each_head = true},
    },
    Family{
        .architecture = "Starcoder2ForCausalLM",
        .model_type = "starcoder2",
        .window = WindowRule::kAllLayers,
        .qkv_bias = {"use_bias", true},
        .o_bias = {"use_bias", true},
        .mlp_bias = {"use_bias", true},
        .facts = {.norm = NormKind::kLayer, .norm_bias = true},
        .keys = {.norm_eps = "norm_epsilon"},
        .defaults = {.kv_heads = 2,
                     .max_position = 4096,
                     .norm_eps = 1e-5,
                     .tie_embeddings = true,
                     .activation = "gelu_pytorch_tanh"},
        .names = {.gate = "", .up = "mlp.c_fc", .down = "mlp.c_proj"},
    },
    Family{
        .architecture = "CohereForCausalLM",
        .model_type = "cohere",
        .interleaved_rotation = true,
        .qkv_bias = {"attention_bias"},
        .o_bias = {"attention_bias"},
        .facts = {.norm = NormKind::kLayer, .parallel_blocks = true},
        .read = ReadCohere,
        .keys = {.norm_eps = "layer_norm_eps"},
        .defaults = {.max_position = 8192,
                     .norm_eps = 1e-5,
                     .rope_theta = 500000.0,
                     .tie_embeddings = true},
        .names = {.mlp_norm = ""},
    },
    Family{
        .architecture = "Cohere2ForCausalLM",
        .model_type = "cohere2",
        .window = WindowRule::kPattern,
        .rotation = RotationRule::kWindowLayers,
        .interleaved_rotation = true,
        .qkv_bias = {"attention_bias"},
        .o_bias = {"attention_bias"},
        .facts = {.norm = NormKind::kLayer, .parallel_blocks = true},
        .read = ReadCohere,
        .keys = {.norm_eps = "layer_norm_eps"},
        .defaults = {.max_position = 8192,
                     .sliding_window = 4096,
                     .window_pattern = 4,
                     .norm_eps = 1e-5,
                     .tie_embeddings = true},
        .names = {.mlp_norm = ""},
    },
};

}  // namespace

std::span<const Family> Families() { return kFamilies; }

const Family* FindFamily(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

}  // namespace quire
