// config.json and generation_config.json as transformers 4 and 5 write them, read into ModelConfig.
// Refuses, by file and key, every setting that changes the results and is not implemented.
#include "engine/model/checkpoint/model_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/fault_list.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/model/checkpoint/config_layers.h"
#include "engine/model/checkpoint/config_quantization.h"
#include "engine/model/checkpoint/config_rope.h"
#include "engine/model/checkpoint/families.h"
#include "engine/model/checkpoint/safetensors.h"
#include "engine/model/config/config_reader.h"
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

// The type of the decoder inside a model of several parts.
void CheckTextType(ConfigReader& text, const Family& family) {
  const std::string type(family.text_model_type);
  if (text.String("model_type", type) != type) {
    text.Refuse("model_type",
                absl::StrCat("\"", type, "\" for ", std::string(family.architecture)));
  }
}

// An integer that config.json must give where the family has no default for it.
int32_t ReadSize(ConfigReader& in, const char* key, int64_t max, int32_t fallback = 0) {
  if (fallback > 0 && !in.Has(key)) return fallback;
  return static_cast<int32_t>(in.Int(key, 1, max));
}

void ReadHeads(ConfigReader& in, const ConfigDefaults& defaults, ModelConfig& out) {
  const size_t before = in.num_faults();
  // In every family null means "as many as query heads"; an absent key means the family's default.
  const bool kv_is_null = in.Contains("num_key_value_heads");
  const int64_t kv_default =
      defaults.kv_heads == 0 || kv_is_null ? out.num_heads : defaults.kv_heads;
  out.num_kv_heads = static_cast<int32_t>(
      in.OptionalInt("num_key_value_heads", 1, kMaxHeads).value_or(kv_default));
  if (in.num_faults() == before && out.num_heads % out.num_kv_heads != 0) {
    in.Refuse("num_key_value_heads",
              absl::StrCat("a divisor of num_attention_heads, ", out.num_heads));
  }
  int64_t head_dim = defaults.head_dim;
  if (head_dim == 0) {
    if (!in.Has("head_dim") && out.hidden_size % out.num_heads != 0) {
      in.Refuse("hidden_size", absl::StrCat("a multiple of num_attention_heads, ", out.num_heads,
                                            ", where \"head_dim\" is not given"));
    }
    head_dim = out.hidden_size / out.num_heads;
  }
  head_dim = in.OptionalInt("head_dim", 1, kMaxHeadDim).value_or(head_dim);
  if (in.num_faults() == before && (head_dim % 2 != 0 || head_dim < 2 || head_dim > kMaxHeadDim)) {
    in.Fail(absl::StrCat("head dimension ", head_dim, " (\"head_dim\", else hidden_size / ",
                         "num_attention_heads); supported: an even number from 2 to ",
                         kMaxHeadDim));
  }
  out.head_dim = static_cast<int32_t>(head_dim);
}

// False: a size is not known, so nothing can be read that follows from sizes.
bool ReadShape(ConfigReader& in, const Family& family, ModelConfig& out) {
  const ConfigDefaults& defaults = family.defaults;
  const size_t before = in.num_faults();
  out.hidden_size = ReadSize(in, "hidden_size", kMaxHidden);
  out.intermediate_size = ReadSize(in, "intermediate_size", kMaxIntermediate);
  out.num_layers = ReadSize(in, family.keys.num_layers, kMaxLayers);
  out.num_heads = ReadSize(in, "num_attention_heads", kMaxHeads, defaults.num_heads);
  out.vocab_size = ReadSize(in, "vocab_size", kMaxVocab, defaults.vocab_size);
  // At least one token of prompt and one of output.
  out.max_position = static_cast<int32_t>(
      in.OptionalInt("max_position_embeddings", 2, kMaxPosition).value_or(defaults.max_position));
  if (in.num_faults() == before) ReadHeads(in, defaults, out);
  return in.num_faults() == before;
}

bool ReadBias(ConfigReader& in, const BiasRule& rule) {
  return rule.key == nullptr ? rule.fallback : in.Bool(rule.key, rule.fallback);
}

void ReadActivation(ConfigReader& in, const Family& family, ModelConfig& out) {
  // The newer key wins where there are two.
  const char* const own = family.keys.activation;
  const char* const key = in.Has(own) ? own : "hidden_act";
  const std::string name = in.String(key, std::string(family.defaults.activation));
  const bool gated = family.names.gated();
  if (gated && (name == "silu" || name == "swish")) {
    out.facts.activation = Activation::kSilu;
  } else if (name == "gelu_pytorch_tanh") {
    out.facts.activation = Activation::kGelu;
  } else {
    in.Refuse(key, gated ? "\"silu\", \"gelu_pytorch_tanh\"" : "\"gelu_pytorch_tanh\"");
  }
}

// Reads all that describes the decoder; its sizes are known.
void ReadDecoder(ConfigReader& in, const Family& family, ModelConfig& out) {
  out.facts = family.facts;
  ReadActivation(in, family, out);
  ReadLayers(in, family, out);
  ReadRope(in, family, out);
  out.norm_eps = static_cast<float>(
      in.OptionalNumber(family.keys.norm_eps, 0.0, 1.0).value_or(family.defaults.norm_eps));
  out.qkv_bias = ReadBias(in, family.qkv_bias);
  out.o_bias = ReadBias(in, family.o_bias);
  out.mlp_bias = ReadBias(in, family.mlp_bias);
  if (family.read != nullptr) family.read(in, out);
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
    // Also those that come second count as read.
    for (const char* key : {"eos_token_id", "bos_token_id"}) reader->Contains(key);
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

// Reads config.json: `in` is the whole, `text` the object with the decoder, which may be the same.
// False: a size is not known.
bool ReadConfig(ConfigReader& in, ConfigReader& text, const Family& family, ModelConfig& out) {
  const bool is_object = text.num_faults() == 0;
  if (is_object && family.keys.text != nullptr) CheckTextType(text, family);
  const bool sized = is_object && ReadShape(text, family, out);
  if (sized) ReadDecoder(text, family, out);
  // The settings around the decoder stand beside it, or in the object that has its sizes.
  for (ConfigReader* reader : {&in, &text}) {
    RefuseWhatChangesResults(*reader);
    ReadQuantization(*reader, sized ? &family : nullptr, out);
  }
  ConfigReader& dtype_at = in.Has("dtype") || in.Has("torch_dtype") ? in : text;
  ReadDType(dtype_at, out);
  ConfigReader& tie_at = in.Has("tie_word_embeddings") ? in : text;
  out.tie_embeddings = tie_at.Bool("tie_word_embeddings", family.defaults.tie_embeddings);
  return sized;
}

// `configs`: the readers of config.json that may have ids of special tokens.
absl::Status ReadGenerationConfig(const std::string& path,
                                  const std::vector<ConfigReader*>& configs, ModelConfig& out,
                                  std::vector<std::string>& unread) {
  absl::StatusOr<nlohmann::json> json = ReadJsonFile(path);
  if (absl::IsNotFound(json.status())) json = nlohmann::json::object();
  RETURN_IF_ERROR(json.status());
  ConfigReader generation(*json, path);
  ReadGeneration(generation, out.vocab_size, out.generation);
  for (ConfigReader* config : configs) ReadSpecialTokens(*config, generation, out);
  unread = generation.UnreadKeys();
  return generation.status();
}

// Keys of config.json that no reader asked for.
std::vector<std::string> UnreadOf(const ConfigReader& in, const ConfigReader& text,
                                  const char* text_key) {
  std::vector<std::string> unread = in.UnreadKeys(), of_text = text.UnreadKeys();
  if (text_key == nullptr) {
    std::erase_if(unread,
                  [&](const std::string& key) { return !std::ranges::count(of_text, key); });
    return unread;
  }
  for (const std::string& key : of_text) unread.push_back(absl::StrCat(text_key, ".", key));
  return unread;
}

// Where there are fewer key/value heads than ranks, neighbouring ranks hold the same one.
bool DividesAmong(const ModelConfig& model, int32_t ranks) {
  const bool kv = model.num_kv_heads % ranks == 0 || ranks % model.num_kv_heads == 0;
  return model.num_heads % ranks == 0 && model.intermediate_size % ranks == 0 && kv;
}

// Columns of a matrix that share a scale stay on one rank.
bool KeepsRuns(const ModelConfig& model, int32_t ranks) {
  const int64_t run = model.quantization.scale_columns();
  if (model.quantization.empty() || run == 0 || ranks == 1) return true;
  const int64_t heads = int64_t{model.num_heads} / ranks * model.head_dim;
  return heads % run == 0 && model.intermediate_size / ranks % run == 0;
}

// The names of the family's tensors in the checkpoint, by where its embedding is. A checkpoint that
// cannot be read is refused by the readers of its tensors.
TensorNames NamesIn(const std::string& dir, TensorNames names) {
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(dir);
  if (!checkpoint.ok()) return names;
  const auto has = [&](std::string_view root) {
    return checkpoint->tensors().contains(
        absl::StrCat(std::string(root), std::string(names.embedding), ".weight"));
  };
  if (has(names.root) || !has(names.other_root)) return names;
  names.root = names.other_root;
  names.head = names.other_head;
  return names;
}

}  // namespace

absl::StatusOr<ModelConfig> ModelConfig::Load(const std::string& dir, UnreadKeys* unread) {
  const std::string path = dir + "/config.json";
  ASSIGN_OR_RETURN(const nlohmann::json json, ReadJsonFile(path));
  ConfigReader in(json, path);
  const Family* family = ReadFamily(in);
  if (family == nullptr) {
    ModelConfig unknown;
    RefuseWhatChangesResults(in);
    ReadQuantization(in, nullptr, unknown);
    return in.status();
  }
  ModelConfig out;
  out.architecture = family->architecture;
  out.model_type = family->model_type;
  out.names = NamesIn(dir, family->names);
  const char* const text_key = family->keys.text;
  const nlohmann::json& text_json = text_key == nullptr ? json : in.At(text_key);
  ConfigReader text(text_json,
                    text_key == nullptr ? path : absl::StrCat(path, ": \"", text_key, "\""));
  FaultList faults;
  UnreadKeys keys;
  if (ReadConfig(in, text, *family, out)) {
    // The ids and the defaults there are held against the size of the vocabulary.
    std::vector<ConfigReader*> configs = {&in};
    if (text_key != nullptr) configs.push_back(&text);
    faults.Add(
        ReadGenerationConfig(dir + "/generation_config.json", configs, out, keys.generation));
    faults.Add(ReadQuantizationFile(dir + "/hf_quant_config.json", *family, out));
    if (in.num_faults() == 0) faults.Add(CheckNoOlderDescription(dir, out));
  }
  keys.config = UnreadOf(in, text, text_key);
  if (unread != nullptr) *unread = std::move(keys);
  for (const ConfigReader* reader : {&in, &text}) faults.Add(reader->status());
  RETURN_IF_ERROR(faults.status());
  return out;
}

std::vector<int32_t> ModelConfig::TensorParallelSizes() const {
  if (facts.qk_norm == QkNorm::kWidth) return {1};
  std::vector<int32_t> sizes;
  for (int32_t size = 1; size <= num_heads; ++size) {
    const bool divides = DividesAmong(*this, size) && KeepsRuns(*this, size);
    if (divides && CheckIntegerShapes(*this, size).ok()) sizes.push_back(size);
  }
  return sizes;
}

absl::Status ModelConfig::CheckTensorParallel(int32_t ranks) const {
  if (ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor-parallel-size ", ranks, ": must be at least 1"));
  }
  if (facts.qk_norm == QkNorm::kWidth && ranks > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor-parallel-size ", ranks, ": ", architecture,
                     " normalises queries and keys over all heads; it runs on 1 rank only"));
  }
  if (DividesAmong(*this, ranks)) {
    if (KeepsRuns(*this, ranks)) return CheckIntegerShapes(*this, ranks);
    return absl::InvalidArgumentError(absl::StrCat(
        "--tensor-parallel-size ", ranks, ": a rank's share of num_attention_heads ", num_heads,
        " times head_dim ", head_dim, " and of intermediate_size ", intermediate_size,
        " must be multiples of the ", kScaleRun, " columns that share a scale; this model takes ",
        absl::StrJoin(TensorParallelSizes(), ", ")));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--tensor-parallel-size ", ranks, ": must divide num_attention_heads ", num_heads,
      " and intermediate_size ", intermediate_size, ", and divide num_key_value_heads ",
      num_kv_heads, " or be a multiple of it; this model takes ",
      absl::StrJoin(TensorParallelSizes(), ", ")));
}

int64_t ModelConfig::NumParameters() const {
  const int64_t hidden = hidden_size, mlp = intermediate_size;
  const int64_t q = int64_t{num_heads} * head_dim, kv = int64_t{num_kv_heads} * head_dim;
  const int64_t norm = facts.norm_bias ? 2 * hidden : hidden;
  const int64_t outputs = names.gated() ? 2 * mlp : mlp;  // of the first matrices of the MLP
  int64_t layer = 2 * hidden * q + 2 * hidden * kv + hidden * (outputs + mlp);
  for (const std::string_view name :
       {names.input_norm, names.attention_output_norm, names.mlp_norm, names.mlp_output_norm}) {
    if (!name.empty() && !(facts.parallel_blocks && name == names.mlp_norm)) layer += norm;
  }
  if (qkv_bias) layer += q + 2 * kv;
  if (o_bias) layer += hidden;
  if (mlp_bias) layer += outputs + hidden;
  if (facts.qk_norm == QkNorm::kHead) layer += int64_t{2} * head_dim;
  if (facts.qk_norm == QkNorm::kWidth || facts.qk_norm == QkNorm::kLayerHeads) layer += q + kv;
  const int64_t embeddings = (tie_embeddings ? 1 : 2) * hidden * vocab_size;
  return num_layers * layer + embeddings + norm;
}

}  // namespace quire
