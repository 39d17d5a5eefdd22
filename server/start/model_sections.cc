// Facts of a ModelConfig in words.
#include "server/start/model_sections.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/checkpoint/config_quantization.h"
#include "engine/model/checkpoint/families.h"

namespace quire {
namespace {

// Keys of an unread list; a config.json of a model with several parts has hundreds.
constexpr size_t kMostKeys = 24;

std::string KeysText(std::vector<std::string> keys) {
  if (keys.empty()) return "none";
  const size_t all = keys.size();
  if (all > kMostKeys) keys.resize(kMostKeys);
  for (std::string& key : keys) key = QuotedText(key, 80);
  std::string text = absl::StrJoin(keys, ", ");
  if (all > kMostKeys) absl::StrAppend(&text, " and ", all - kMostKeys, " more");
  return text;
}

// Without an exponent for bases such as 1000000.
std::string NumberText(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.10g", value);
  return text.data();
}

std::string ScalingText(const RopeConfig& rope, int32_t max_position, int32_t longest) {
  const std::string factor = absl::StrCat("factor ", NumberText(rope.factor));
  const std::string original = CountText(rope.original_max_position);
  switch (rope.scaling) {
    case RopeScaling::kNone: return "";
    case RopeScaling::kLinear: return absl::StrCat("linear, ", factor, "; ");
    case RopeScaling::kLlama3: return absl::StrCat("llama3, ", factor, " of ", original, "; ");
    case RopeScaling::kYarn: return absl::StrCat("yarn, ", factor, " of ", original, "; ");
    case RopeScaling::kDynamic:
      return absl::StrCat("dynamic: --max-model-len above ", CountText(max_position), ", up to ",
                          CountText(longest), ", changes the base; ");
    case RopeScaling::kLongRope:
      return absl::StrCat("longrope: short factors up to --max-model-len ", original,
                          ", long ones above; ");
  }
  return "";
}

std::string RotationText(const ModelConfig& model) {
  const RopeConfig& rope = model.rope;
  std::string text = absl::StrCat(ScalingText(rope, model.max_position, model.longest_position),
                                  "base ", NumberText(rope.theta));
  if (rope.rotary_dim != model.head_dim) {
    absl::StrAppend(&text, ", ", rope.rotary_dim, " of ", model.head_dim, " dimensions");
  }
  if (rope.interleaved) absl::StrAppend(&text, ", interleaved");
  const auto layers = [&](Rotation kind) { return std::ranges::count(model.layer_rotation, kind); };
  if (const auto local = layers(Rotation::kLocal); local > 0) {
    absl::StrAppend(&text, "; base ", NumberText(model.local_rope.theta), " in ", local, " layers");
  }
  if (const auto none = layers(Rotation::kNone); none > 0) {
    absl::StrAppend(&text, "; none in ", none, " layers");
  }
  return text;
}

std::string WindowText(const ModelConfig& model) {
  if (model.sliding_window == 0) return "none";
  return absl::StrCat(CountText(model.sliding_window), " tokens in ",
                      std::ranges::count(model.layer_is_sliding, 1), " of ", model.num_layers,
                      " layers");
}

const char* QkNormText(QkNorm norm) {
  switch (norm) {
    case QkNorm::kNone: return "";
    case QkNorm::kHead: return "norms of query and key heads";
    case QkNorm::kWidth: return "norms over all query and key heads";
    case QkNorm::kLayerHeads: return "layer norms of query and key heads";
  }
  return "";
}

// In what the equation differs from llama's, beside positions and windows.
std::string EquationText(const ModelConfig& model) {
  const DecoderFacts& facts = model.facts;
  std::vector<std::string> parts;
  const auto add = [&parts](bool present, std::string text) {
    if (present) parts.push_back(std::move(text));
  };
  add(facts.norm == NormKind::kLayer, "layer norms");
  add(facts.norm_offset != 0, absl::StrCat(facts.norm_offset, " + w norms"));
  add(facts.qk_norm != QkNorm::kNone, QkNormText(facts.qk_norm));
  add(facts.activation == Activation::kGelu, "GELU");
  add(facts.parallel_blocks, "parallel blocks");
  add(facts.embedding_scale != 1, absl::StrCat("embeddings times ", facts.embedding_scale));
  add(facts.residual_scale != 1, absl::StrCat("residuals times ", facts.residual_scale));
  add(facts.attention_scale != 0, absl::StrCat("scores times ", facts.attention_scale));
  add(facts.attention_soft_cap != 0, absl::StrCat("scores capped at ", facts.attention_soft_cap));
  add(facts.logit_scale != 1, absl::StrCat("logits times ", facts.logit_scale));
  add(facts.logit_soft_cap != 0, absl::StrCat("logits capped at ", facts.logit_soft_cap));
  add(model.qkv_bias, "biases of queries, keys and values");
  add(model.o_bias, "biases of attention outputs");
  add(model.mlp_bias, "biases of the feed-forward");
  add(model.tie_embeddings, "tied embeddings");
  return parts.empty() ? "llama's" : "llama's but " + absl::StrJoin(parts, ", ");
}

void AddConfig(const ModelConfig& model, CheckSection& section) {
  section.Add("architecture", absl::StrCat(model.architecture, " (", model.model_type,
                                           "), a family of docs/models.md"));
  section.Add("parameters", CountText(model.NumParameters()));
  section.Add("layers", absl::StrCat(model.num_layers));
  section.Add("heads", absl::StrCat(model.num_heads, " query, ", model.num_kv_heads,
                                    " key/value, of ", model.head_dim));
  section.Add("hidden size", CountText(model.hidden_size));
  section.Add("feed-forward size", CountText(model.intermediate_size));
  section.Add("vocabulary", CountText(model.vocab_size));
  section.Add("equation", EquationText(model));
  section.Add("context", absl::StrCat(CountText(model.max_position), " tokens"));
  section.Add("rotation", RotationText(model));
  section.Add("windows", WindowText(model));
  section.Add("dtype", absl::StrCat(Name(model.stored_dtype), " says config.json",
                                    model.quantization.empty()
                                        ? ""
                                        : ", matrices in " + EncodingText(model.quantization)));
  section.Add("ranks",
              absl::StrCat("divides among ", absl::StrJoin(model.TensorParallelSizes(), ", ")));
}

template <typename T>
void AddDefault(const char* name, const std::optional<T>& value, std::vector<std::string>& out) {
  if (value.has_value()) out.push_back(absl::StrCat(name, " ", *value));
}

}  // namespace

CheckSection DescribeModel(const CheckedModel& model) {
  CheckSection section{.title = "Model"};
  section.Add("directory", model.settings.engine.model);
  section.Add("served as", absl::StrJoin(model.settings.server.served_model_names, ", "));
  if (!model.config.has_value()) {
    section.Add("config.json", "refused, see the end");
    return section;
  }
  AddConfig(*model.config, section);
  section.Add("keys not read", KeysText(model.unread.config));
  return section;
}

CheckSection DescribeGeneration(const CheckedModel& model) {
  CheckSection section{.title = "Generation defaults"};
  if (!model.config.has_value()) {
    section.Add("defaults", "not known without config.json");
    return section;
  }
  const GenerationDefaults& defaults = model.config->generation;
  std::vector<std::string> read;
  AddDefault("temperature", defaults.temperature, read);
  AddDefault("top_k", defaults.top_k, read);
  AddDefault("top_p", defaults.top_p, read);
  AddDefault("min_p", defaults.min_p, read);
  AddDefault("repetition_penalty", defaults.repetition_penalty, read);
  AddDefault("max_new_tokens", defaults.max_new_tokens, read);
  if (!defaults.do_sample) read.emplace_back("do_sample false: greedy");
  section.Add("defaults", read.empty() ? "none" : absl::StrJoin(read, ", "));
  section.Add("keys not read", KeysText(model.unread.generation));
  return section;
}

}  // namespace quire
