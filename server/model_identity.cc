// Feeds the hash in a fixed order.
#include "server/model_identity.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/model/checkpoint/safetensors.h"

namespace quire {
namespace {

// Samples per tensor: enough to distinguish a fine-tuned model, which changes every weight a
// little, from its base.
constexpr uint64_t kSamples = 4;
constexpr uint64_t kSampleBytes = 1024;

void AddNumber(double value, std::string* facts) { *facts += std::to_string(value) + " "; }

std::string RotationOf(const RopeConfig& rope) {
  std::string facts;
  for (const double value :
       {static_cast<double>(rope.scaling), rope.theta, rope.factor, rope.low_freq_factor,
        rope.high_freq_factor, static_cast<double>(rope.original_max_position), rope.beta_fast,
        rope.beta_slow, rope.attention_factor.value_or(-1), rope.mscale.value_or(-1),
        rope.mscale_all_dim.value_or(-1), static_cast<double>(rope.truncate)}) {
    AddNumber(value, &facts);
  }
  if (rope.attn_factor != 1) AddNumber(rope.attn_factor, &facts);
  return facts;
}

// The rotations as they are served: a longer context may choose other frequencies.
std::string ServedRotations(const EngineSetup& setup) {
  const ModelConfig& model = setup.model;
  const bool all_global =
      std::ranges::count(model.layer_rotation, Rotation::kGlobal) == model.num_layers;
  std::string text;
  for (const Rotation rotation : model.layer_rotation) {
    if (!all_global) text += static_cast<char>('0' + static_cast<int>(rotation));
  }
  if (!all_global) text += RotationOf(model.local_rope);
  const RopeConfig& rope = model.rope;
  if (rope.rotary_dim != model.head_dim) AddNumber(rope.rotary_dim, &text);
  if (rope.scaling == RopeScaling::kDynamic) AddNumber(setup.config.max_model_len, &text);
  if (rope.scaling == RopeScaling::kLongRope) {
    const bool is_long = setup.config.max_model_len > rope.original_max_position;
    for (const float factor : is_long ? rope.long_factor : rope.short_factor) {
      AddNumber(factor, &text);
    }
  }
  return text;
}

// Facts of the stored elements that config.json alone has. 8-bit floats with a scale for each row
// have none.
std::string FormatOf(const Quantization& quantization) {
  std::string text;
  if (quantization.integers.has_value()) {
    const IntegerFormat& f = *quantization.integers;
    for (const int part : {static_cast<int>(f.packing), f.bits, f.group, int{f.has_zeros},
                           int{f.zeros_less_one}, int{f.any_order}}) {
      text += std::to_string(part) + " ";
    }
  } else if (quantization.encoding != Encoding::kFp8Rows) {
    text = "encoding " + std::to_string(static_cast<int>(quantization.encoding)) + " ";
  }
  return text;
}

// Facts that a model without them does not name, so that files of older servers stay valid.
std::string FamilyFactsOf(const EngineSetup& setup) {
  const DecoderFacts &facts = setup.model.facts, usual;
  std::string text;
  const auto add = [&text](double value, double otherwise, const char* name) {
    if (value == otherwise) return;
    text += name;
    AddNumber(value, &text);
  };
  add(static_cast<double>(facts.activation), 0, "activation");
  add(facts.parallel_blocks, 0, "parallel");
  add(facts.embedding_scale, usual.embedding_scale, "embedding");
  add(facts.residual_scale, usual.residual_scale, "residual");
  add(facts.attention_scale, usual.attention_scale, "attention");
  add(facts.attention_soft_cap, usual.attention_soft_cap, "cap");
  if (!setup.model.quantization.empty()) {
    text += "quantization " + setup.config.quantization + " " + FormatOf(setup.model.quantization);
  }
  return text + ServedRotations(setup);
}

std::string FactsOf(const ModelConfig& model) {
  std::string facts = model.architecture + " ";
  for (const int32_t size :
       {model.hidden_size, model.intermediate_size, model.num_layers, model.num_heads,
        model.num_kv_heads, model.head_dim, model.vocab_size, model.sliding_window}) {
    facts += std::to_string(size) + " ";
  }
  facts.append(model.layer_is_sliding.begin(), model.layer_is_sliding.end());
  for (const bool flag : {model.tie_embeddings, model.qkv_bias, model.o_bias, model.mlp_bias,
                          model.facts.qk_norm != QkNorm::kNone}) {
    facts += flag ? "1 " : "0 ";
  }
  AddNumber(double{model.norm_eps} * 1e6, &facts);
  return facts + RotationOf(model.rope);
}

// Hashes name, type, shape and bytes from places spread over the tensor.
absl::Status AddTensor(const Checkpoint& checkpoint, const std::string& name,
                       const StoredTensor& tensor, std::string* facts) {
  *facts += name + " " + tensor.dtype;
  for (const int64_t size : tensor.shape) *facts += " " + std::to_string(size);
  std::array<char, kSampleBytes> sample;
  const uint64_t bytes = std::min(kSampleBytes, tensor.bytes);
  for (uint64_t i = 0; i < kSamples; ++i) {
    const uint64_t offset = (tensor.bytes - bytes) / (kSamples - 1) * i;
    RETURN_IF_ERROR(checkpoint.Read(name, offset, std::span(sample.data(), bytes)));
    facts->append(sample.data(), bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<uint64_t> ModelIdentity(const EngineSetup& setup) {
  std::string facts = FactsOf(setup.model) + setup.config.dtype + FamilyFactsOf(setup);
  uint64_t hash = XXH3_64bits(facts.data(), facts.size());
  if (setup.config.load_format == "dummy") return hash;
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(setup.config.model));
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    facts.clear();
    RETURN_IF_ERROR(AddTensor(checkpoint, name, tensor, &facts));
    hash = XXH3_64bits_withSeed(facts.data(), facts.size(), hash);
  }
  return hash;
}

absl::StatusOr<uint64_t> LoadedIdentity(const EngineSetup& setup, uint64_t identity) {
  uint64_t hash = identity;
  for (const char* name : {"/config.json", "/hf_quant_config.json"}) {
    const absl::StatusOr<nlohmann::json> json = ReadJsonFile(setup.config.model + name);
    if (absl::IsNotFound(json.status())) continue;
    RETURN_IF_ERROR(json.status());
    const std::string text = json->dump();
    hash = XXH3_64bits_withSeed(text.data(), text.size(), hash);
  }
  return hash;
}

absl::Status CheckSameFiles(const EngineSetup& setup, uint64_t loaded) {
  const auto found = [&]() -> absl::StatusOr<uint64_t> {
    ASSIGN_OR_RETURN(const uint64_t identity, ModelIdentity(setup));
    return LoadedIdentity(setup, identity);
  }();
  if (found.ok() && *found == loaded) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      setup.config.model, ": the model's files are not those that the server started with",
      found.ok() ? "" : absl::StrCat(" (", std::string(found.status().message()), ")"),
      "; put them back, or start the server again to serve the new ones"));
}

}  // namespace quire
