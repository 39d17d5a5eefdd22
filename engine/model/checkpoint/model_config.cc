// config.json and generation_config.json as transformers 4 and 5 write them, read into ModelConfig.
// Refuses, by file and key, every setting that changes the results and is not implemented.
#include "engine/model/checkpoint/model_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/model/checkpoint/config_reader.h"
#include "engine/model/checkpoint/families.h"
#include "engine/values/sampling_params.h"

namespace quire {
namespace {

// Bounds of the sizes: far above any model, and small enough that no product of them overflows. A
// layer has at most 4 * hidden * heads * head_dim = 2^46 attention weights and 3 * 2^42 MLP
// weights, all layers have 2^58, or 2^60 bytes in float32. Int64 arithmetic on a ModelConfig
// therefore needs no further checks.
constexpr int64_t kMaxHidden = int64_t{1} << 20;
constexpr int64_t kMaxIntermediate = int64_t{1} << 22;
constexpr int64_t kMaxLayers = int64_t{1} << 12;
constexpr int64_t kMaxHeads = int64_t{1} << 14;
constexpr int64_t kMaxHeadDim = int64_t{1} << 10;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxPosition = int64_t{1} << 27;

constexpr double kHuge = 1e30;

// The family that config.json names, or null with the fault recorded.
const Family* ReadFamily(ConfigReader& in) {
  std::string supported;
  for (const Family& family : Families()) {
    absl::StrAppend(&supported, supported.empty() ? "" : ", ", std::string(family.architecture));
  }
  const nlohmann::json& list = in.At("architectures");
  if (!list.is_array() || list.size() != 1 || !list[0].is_string()) {
    in.Refuse("architectures", absl::StrCat("a list of one of ", supported));
    return nullptr;
  }
  const Family* const family = FindFamily(list[0].get_ref<const std::string&>());
  if (family == nullptr) {
    in.Refuse("architectures", supported);
    return nullptr;
  }
  const std::string type(family->model_type);
  if (in.String("model_type", type) != type) {
    in.Refuse("model_type", absl::StrCat("\"", type, "\" for ", std::string(family->architecture)));
  }
  return family;
}

void ReadShape(ConfigReader& in, const Family& family, ModelConfig& out) {
  const auto size = [&in](const char* key, int64_t max) {
    return static_cast<int32_t>(in.Int(key, 1, max));
  };
  out.hidden_size = size("hidden_size", kMaxHidden);
  out.intermediate_size = size("intermediate_size", kMaxIntermediate);
  out.num_layers = size("num_hidden_layers", kMaxLayers);
  out.num_heads = size("num_attention_heads", kMaxHeads);
  out.vocab_size = size("vocab_size", kMaxVocab);
  // At least one token of prompt and one of output.
  out.max_position = static_cast<int32_t>(in.OptionalInt("max_position_embeddings", 2, kMaxPosition)
                                              .value_or(family.default_max_position));
  if (!in.status().ok()) return;

  // In every family null means "as many as query heads"; an absent key means the family's default.
  const bool kv_is_null = in.Contains("num_key_value_heads");
  const int64_t kv_default =
      family.default_kv_heads == 0 || kv_is_null ? out.num_heads : family.default_kv_heads;
  out.num_kv_heads = static_cast<int32_t>(
      in.OptionalInt("num_key_value_heads", 1, kMaxHeads).value_or(kv_default));
  if (in.status().ok() && out.num_heads % out.num_kv_heads != 0) {
    in.Refuse("num_key_value_heads",
              absl::StrCat("a divisor of num_attention_heads, ", out.num_heads));
  }

  int64_t head_dim = family.default_head_dim;
  if (head_dim == 0) {
    if (!in.Has("head_dim") && out.hidden_size % out.num_heads != 0) {
      in.Refuse("hidden_size", absl::StrCat("a multiple of num_attention_heads, ", out.num_heads,
                                            ", where \"head_dim\" is not given"));
    }
    head_dim = out.hidden_size / out.num_heads;
  }
  head_dim = in.OptionalInt("head_dim", 1, kMaxHeadDim).value_or(head_dim);
  if (in.status().ok() && (head_dim % 2 != 0 || head_dim < 2 || head_dim > kMaxHeadDim)) {
    in.Fail(absl::StrCat("head dimension ", head_dim, " (\"head_dim\", else hidden_size / ",
                         "num_attention_heads); supported: an even number from 2 to ",
                         kMaxHeadDim));
  }
  out.head_dim = static_cast<int32_t>(head_dim);
}

// The per-layer window of the Qwen families: "layer_types" if given, else every layer from
// max_window_layers on.
void ReadLayerTypes(ConfigReader& in, ModelConfig& out) {
  if (!in.Has("layer_types")) {
    const int64_t first = in.OptionalInt("max_window_layers", 0, kMaxPosition).value_or(28);
    for (int32_t i = 0; i < out.num_layers; ++i) {
      out.layer_is_sliding[i] = out.sliding_window > 0 && i >= first;
    }
    return;
  }
  const nlohmann::json& types = in.At("layer_types");
  if (!types.is_array() || types.size() != static_cast<size_t>(out.num_layers)) {
    in.Refuse("layer_types", absl::StrCat("a list of num_hidden_layers, ", out.num_layers));
    return;
  }
  for (int32_t i = 0; i < out.num_layers; ++i) {
    out.layer_is_sliding[i] = types[i] == "sliding_attention";
    if (!out.layer_is_sliding[i] && types[i] != "full_attention") {
      in.Refuse("layer_types", "\"full_attention\" and \"sliding_attention\"");
      return;
    }
    if (out.layer_is_sliding[i] && out.sliding_window == 0) {
      in.Refuse("layer_types",
                "\"sliding_attention\" only with \"use_sliding_window\" and a \"sliding_window\"");
      return;
    }
  }
}

void ReadWindow(ConfigReader& in, const Family& family, ModelConfig& out) {
  out.layer_is_sliding.assign(out.num_layers, 0);
  if (family.window == WindowRule::kNone) {
    if (in.Has("layer_types")) {
      for (const nlohmann::json& type : in.At("layer_types")) {
        if (type != "full_attention") in.Refuse("layer_types", "\"full_attention\" for llama");
      }
    }
    return;
  }
  // An absent key means the default of the configuration classes; null means no window.
  constexpr int64_t kDefaultWindow = 4096;
  const bool by_layer = family.window == WindowRule::kByLayer;
  if (!by_layer || in.Bool("use_sliding_window", false)) {
    const bool is_null = in.Contains("sliding_window") && !in.Has("sliding_window");
    out.sliding_window = static_cast<int32_t>(
        in.OptionalInt("sliding_window", 1, kMaxPosition).value_or(is_null ? 0 : kDefaultWindow));
  }
  if (by_layer) {
    ReadLayerTypes(in, out);
  } else {
    out.layer_is_sliding.assign(out.num_layers, out.sliding_window > 0);
  }
  if (std::ranges::find(out.layer_is_sliding, 1) == out.layer_is_sliding.end()) {
    out.sliding_window = 0;
  }
}

void ReadRopeScaling(ConfigReader& rope, ModelConfig& out) {
  RopeConfig& r = out.rope;
  const char* type_key = rope.Has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.String(type_key, "default");
  if (type == "default") return;
  if (type == "linear") {
    r.scaling = RopeScaling::kLinear;
  } else if (type == "llama3") {
    r.scaling = RopeScaling::kLlama3;
  } else if (type == "yarn") {
    r.scaling = RopeScaling::kYarn;
  } else {
    rope.Refuse(type_key, "\"default\", \"linear\", \"llama3\", \"yarn\"");
    return;
  }
  r.factor = rope.Number("factor", 1.0, kHuge);
  if (r.scaling == RopeScaling::kLinear) return;
  r.original_max_position = rope.OptionalInt("original_max_position_embeddings", 1, kMaxPosition)
                                .value_or(out.max_position);
  if (r.scaling == RopeScaling::kLlama3) {
    r.low_freq_factor = rope.Number("low_freq_factor", 1e-6, kHuge);
    r.high_freq_factor = rope.Number("high_freq_factor", 1e-6, kHuge);
    if (rope.status().ok() && r.high_freq_factor <= r.low_freq_factor) {
      rope.Refuse("high_freq_factor", "a number above low_freq_factor");
    }
    return;
  }
  // Zero counts as unset here, as in transformers.
  const auto unless_zero = [&rope](const char* key) {
    std::optional<double> v = rope.OptionalNumber(key, 0.0, kHuge);
    return v == 0.0 ? std::nullopt : v;
  };
  r.beta_fast = unless_zero("beta_fast").value_or(32.0);
  r.beta_slow = unless_zero("beta_slow").value_or(1.0);
  r.attention_factor = rope.OptionalNumber("attention_factor", 0.0, kHuge);
  r.mscale = unless_zero("mscale");
  r.mscale_all_dim = unless_zero("mscale_all_dim");
  r.truncate = rope.Bool("truncate", true);
  if (r.theta <= 1.0) rope.Fail("\"rope_theta\" must be above 1 for yarn");
}

void ReadRope(ConfigReader& in, ModelConfig& out) {
  // transformers 5 writes rope_parameters, which includes the base; transformers 4 wrote
  // rope_scaling beside the base.
  const bool is_new = in.Has("rope_parameters");
  if (is_new && in.Has("rope_scaling") && in.At("rope_scaling") != in.At("rope_parameters")) {
    in.Refuse("rope_scaling", "one of \"rope_scaling\" and \"rope_parameters\"");
  }
  const char* name = is_new ? "rope_parameters" : "rope_scaling";
  const nlohmann::json none = nlohmann::json::object();
  const nlohmann::json& object = in.Has(name) ? in.At(name) : none;
  ConfigReader rope(object, absl::StrCat(in.where(), ": \"", name, "\""));

  static constexpr const char* kKnown[] = {
      "rope_type",
      "type",
      "rope_theta",
      "factor",
      "finetuned",
      "original_max_position_embeddings",
      "beta_fast",
      "beta_slow",
      "low_freq_factor",
      "mscale",
      "mscale_all_dim",
      "high_freq_factor",
      "truncate",
      "attention_factor",
      "partial_rotary_factor",
  };
  for (auto it = object.begin(); rope.status().ok() && it != object.end(); ++it) {
    if (std::ranges::find(kKnown, it.key()) == std::end(kKnown)) {
      rope.Fail(absl::StrCat("unknown key \"", it.key(), "\"; supported: the keys of default, ",
                             "linear, llama3 and yarn scaling, one for all layers"));
    }
  }
  for (ConfigReader* reader : {&in, &rope}) {
    reader->OptionalNumber("partial_rotary_factor", 1.0, 1.0);
  }
  ConfigReader& theta_at = rope.Has("rope_theta") ? rope : in;
  out.rope.theta = theta_at.OptionalNumber("rope_theta", 1e-3, kHuge).value_or(10000.0);
  if (rope.status().ok()) ReadRopeScaling(rope, out);
  if (!rope.status().ok()) in.Adopt(rope.status());
  // YaRN names the context before scaling; some checkpoints leave that in max_position_embeddings.
  if (out.rope.scaling == RopeScaling::kYarn) {
    const double scaled =
        std::floor(out.rope.factor * static_cast<double>(out.rope.original_max_position));
    out.max_position = static_cast<int32_t>(
        std::min<double>(kMaxPosition, std::max<double>(out.max_position, scaled)));
  }
}

void ReadDType(ConfigReader& in, ModelConfig& out) {
  const char* key = in.Has("dtype") ? "dtype" : "torch_dtype";
  std::string name = in.String(key, "float32");
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (name == "float32") {
    out.stored_dtype = DType::kF32;
  } else if (name == "bfloat16") {
    out.stored_dtype = DType::kBF16;
  } else if (name == "float16") {
    out.stored_dtype = DType::kF16;
  } else {
    in.Refuse(key, "\"float32\", \"bfloat16\", \"float16\"");
  }
}

void RefuseWhatChangesResults(ConfigReader& in) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (in.Has(key)) in.Refuse(key, "weights in float32, bfloat16 or float16 without quantization");
  }
  const std::string act = in.String("hidden_act", "silu");
  if (act != "silu" && act != "swish") in.Refuse("hidden_act", "\"silu\"");
  if (!in.Bool("is_causal", true)) in.Refuse("is_causal", "true: a causal language model");
  if (in.Bool("is_encoder_decoder", false)) in.Refuse("is_encoder_decoder", "false: decoder only");
}

// Refuses defaults outside the range of a request's field: every request that relies on them would
// be refused. The message begins with the key.
absl::Status CheckAsRequest(const GenerationDefaults& defaults, int32_t vocab_size) {
  SamplingParams asked;
  asked.row.temperature = defaults.temperature.value_or(asked.row.temperature);
  asked.row.top_k = defaults.top_k.value_or(asked.row.top_k);
  asked.row.top_p = defaults.top_p.value_or(asked.row.top_p);
  asked.row.min_p = defaults.min_p.value_or(asked.row.min_p);
  asked.row.repetition_penalty = defaults.repetition_penalty.value_or(asked.row.repetition_penalty);
  asked.max_tokens = defaults.max_new_tokens.value_or(1);
  return asked.Validate(vocab_size);
}

void ReadGeneration(ConfigReader& in, int32_t vocab_size, GenerationDefaults& out) {
  const auto number = [&in](const char* key) -> std::optional<float> {
    const std::optional<double> v = in.OptionalNumber(key, -kHuge, kHuge);
    if (!v.has_value()) return std::nullopt;
    return static_cast<float>(*v);
  };
  out.temperature = number("temperature");
  out.top_p = number("top_p");
  out.min_p = number("min_p");
  out.repetition_penalty = number("repetition_penalty");
  if (auto v = in.OptionalInt("top_k", -1, kMaxVocab)) out.top_k = std::max<int64_t>(*v, 0);
  if (auto v = in.OptionalInt("max_new_tokens", 1, kMaxPosition)) out.max_new_tokens = *v;
  out.do_sample = in.Bool("do_sample", true);
  const absl::Status allowed = CheckAsRequest(out, vocab_size);
  if (!allowed.ok()) in.Fail(std::string(allowed.message()));
}

void ReadSpecialTokens(ConfigReader& config, ConfigReader& generation, ModelConfig& out) {
  const int64_t last = int64_t{out.vocab_size} - 1;
  for (ConfigReader* reader : {&generation, &config}) {
    if (out.eos_token_ids.empty()) {
      for (int64_t id : reader->IntList("eos_token_id", 0, last)) {
        out.eos_token_ids.push_back(static_cast<int32_t>(id));
      }
      if (out.eos_token_ids.size() > SamplingParams::kMaxEosTokenIds) {
        reader->Refuse("eos_token_id",
                       absl::StrCat("at most ", SamplingParams::kMaxEosTokenIds, " ids"));
      }
    }
    if (!out.bos_token_id.has_value()) {
      if (auto id = reader->OptionalInt("bos_token_id", 0, last)) out.bos_token_id = *id;
    }
  }
}

// Where there are fewer key/value heads than ranks, neighbouring ranks hold the same one.
bool DividesAmong(const ModelConfig& model, int32_t ranks) {
  const bool kv = model.num_kv_heads % ranks == 0 || ranks % model.num_kv_heads == 0;
  return model.num_heads % ranks == 0 && model.intermediate_size % ranks == 0 && kv;
}

}  // namespace

absl::StatusOr<ModelConfig> ModelConfig::Load(const std::string& dir) {
  const std::string path = dir + "/config.json";
  ASSIGN_OR_RETURN(const nlohmann::json json, ReadJsonFile(path));
  ConfigReader in(json, path);
  const Family* family = ReadFamily(in);
  RETURN_IF_ERROR(in.status());

  ModelConfig out;
  out.architecture = family->architecture;
  out.model_type = family->model_type;
  ReadShape(in, *family, out);
  RETURN_IF_ERROR(in.status());
  RefuseWhatChangesResults(in);
  ReadWindow(in, *family, out);
  ReadRope(in, out);
  ReadDType(in, out);
  out.norm_eps = static_cast<float>(in.OptionalNumber("rms_norm_eps", 0.0, 1.0).value_or(1e-6));
  out.tie_embeddings = in.Bool("tie_word_embeddings", false);
  const bool attention_bias = family->reads_attention_bias && in.Bool("attention_bias", false);
  out.qkv_bias = family->qkv_bias || attention_bias;
  out.o_bias = attention_bias;
  out.mlp_bias = family->reads_mlp_bias && in.Bool("mlp_bias", false);
  out.qk_norm = family->qk_norm;

  const std::string generation_path = dir + "/generation_config.json";
  absl::StatusOr<nlohmann::json> generation_json = ReadJsonFile(generation_path);
  if (absl::IsNotFound(generation_json.status())) generation_json = nlohmann::json::object();
  RETURN_IF_ERROR(generation_json.status());
  ConfigReader generation(*generation_json, generation_path);
  ReadGeneration(generation, out.vocab_size, out.generation);
  ReadSpecialTokens(in, generation, out);
  RETURN_IF_ERROR(in.status());
  RETURN_IF_ERROR(generation.status());
  return out;
}

absl::Status ModelConfig::CheckTensorParallel(int32_t ranks) const {
  if (ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor-parallel-size ", ranks, ": must be at least 1"));
  }
  if (DividesAmong(*this, ranks)) return absl::OkStatus();
  std::vector<int32_t> sizes;
  for (int32_t size = 1; size <= num_heads; ++size) {
    if (DividesAmong(*this, size)) sizes.push_back(size);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--tensor-parallel-size ", ranks, ": must divide num_attention_heads ", num_heads,
      " and intermediate_size ", intermediate_size, ", and divide num_key_value_heads ",
      num_kv_heads, " or be a multiple of it; this model takes ", absl::StrJoin(sizes, ", ")));
}

int64_t ModelConfig::NumParameters() const {
  const int64_t hidden = hidden_size;
  const int64_t q = int64_t{num_heads} * head_dim;
  const int64_t kv = int64_t{num_kv_heads} * head_dim;
  const int64_t mlp = intermediate_size;
  int64_t layer = 2 * hidden * q + 2 * hidden * kv + 3 * hidden * mlp + 2 * hidden;
  if (qkv_bias) layer += q + 2 * kv;
  if (o_bias) layer += hidden;
  if (mlp_bias) layer += 2 * mlp + hidden;
  if (qk_norm) layer += int64_t{2} * head_dim;
  const int64_t embeddings = (tie_embeddings ? 1 : 2) * hidden * vocab_size;
  return num_layers * layer + embeddings + hidden;
}

}  // namespace quire
