// The ways in which published checkpoints describe 8-bit matrices, each read strictly: a key that
// is not known could change results.
#include "engine/model/checkpoint/config_quantization.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/model/checkpoint/families.h"
#include "engine/model/checkpoint/model_config.h"
#include "engine/model/checkpoint/module_list.h"
#include "kernels/ops.h"

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr char kServed[] =
    "\"compressed-tensors\", \"fp8\" and \"modelopt\" with 8-bit floats and one scale for each "
    "row, "
    "matrix or block of 128 x 128, or weights in float32, bfloat16 or float16";
// The elements of a matrix that share a scale.
const Json& kBlock() {
  static const Json block = Json::array({kScaleRun, kScaleRun});
  return block;
}

// Refuses a key that is neither absent, null nor `wanted`.
void Allow(ConfigReader& in, const char* key, const Json& wanted) {
  if (in.Has(key) && in.At(key) != wanted) in.Refuse(key, wanted.dump());
}
// Refuses a key that is anything else than `wanted`.
void Demand(ConfigReader& in, const char* key, const Json& wanted) {
  if (in.At(key) != wanted) in.Refuse(key, wanted.dump());
}
// Refuses a key that has any content.
void AllowEmpty(ConfigReader& in, const char* key) {
  if (in.Has(key) && !in.At(key).empty()) in.Refuse(key, "null");
}
// Keys that change no result here.
void PassOver(ConfigReader& in, std::initializer_list<const char*> keys) {
  for (const char* key : keys) in.Contains(key);
}
void RefuseUnreadKeys(ConfigReader& in) {
  for (const std::string& key : in.UnreadKeys()) {
    in.Fail(absl::StrCat("unknown key \"", key, "\""));
  }
}

// Weights, or the inputs of their products, or keys and values: symmetric and of 8 bits, without
// groups or blocks but for the key `read`.
void ReadEightBit(ConfigReader& in, const char* type, const char* read = nullptr) {
  Demand(in, "num_bits", 8);
  Demand(in, "type", type);
  Allow(in, "symmetric", true);
  for (const char* key : {"group_size", "block_structure", "actorder"}) {
    if (read == nullptr || std::string_view(key) != read) AllowEmpty(in, key);
  }
  PassOver(in, {"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
}

Encoding ReadWeights(ConfigReader& in, bool integers) {
  const bool blocks = !integers && in.At("strategy") == "block";
  if (blocks) {
    Demand(in, "block_structure", kBlock());
  } else if (in.Has("strategy") && in.At("strategy") != "channel" &&
             in.At("strategy") != "tensor") {
    in.Refuse("strategy",
              integers ? "\"channel\", \"tensor\"" : "\"channel\", \"tensor\", \"block\"");
  }
  Allow(in, "dynamic", false);
  ReadEightBit(in, integers ? "int" : "float", blocks ? "block_structure" : nullptr);
  RefuseUnreadKeys(in);
  if (integers) return Encoding::kInt8Rows;
  return blocks ? Encoding::kFp8Blocks : Encoding::kFp8Rows;
}

// Each token has a scale of its own here, whatever the file says of theirs; with blocks of weights,
// as they have it too, each run of a token.
void ReadActivations(ConfigReader& in, Encoding weights) {
  if (weights == Encoding::kFp8Blocks) {
    Demand(in, "strategy", "group");
    Demand(in, "group_size", kScaleRun);
    Demand(in, "dynamic", true);
    ReadEightBit(in, "float", "group_size");
  } else {
    if (in.Has("strategy") && in.At("strategy") != "token" && in.At("strategy") != "tensor") {
      in.Refuse("strategy", "\"token\", \"tensor\"");
    }
    PassOver(in, {"dynamic"});
    ReadEightBit(in, weights == Encoding::kInt8Rows ? "int" : "float");
  }
  RefuseUnreadKeys(in);
}

// A description's statement of the matrices.
struct Description {
  ModuleList wide;  // modules that are not 8-bit
  Encoding encoding = Encoding::kFp8Rows;
  std::string scale_suffix = ".weight_scale";
};

class QuantizationReader {
 public:
  explicit QuantizationReader(ConfigReader& in) : in_(in) {}

  // Reads the object of config.json.
  Description Read() {
    const std::string method = in_.String("quant_method", "");
    if (method == "compressed-tensors") {
      read_.wide = CompressedTensors();
    } else if (method == "fp8") {
      read_.wide = Fp8();
    } else if (method == "modelopt") {
      read_.wide = ModelOpt("ignore", "kv_cache_scheme");
    } else {
      if (in_.num_faults() == 0) in_.Refuse("quant_method", kServed);
      return std::move(read_);
    }
    RefuseUnreadKeys(in_);
    return std::move(read_);
  }
  // Reads the object of hf_quant_config.json.
  Description ReadFile() {
    read_.wide = ModelOpt("exclude_modules", "kv_cache_quant_algo");
    RefuseUnreadKeys(in_);
    return std::move(read_);
  }

 private:
  ModuleList CompressedTensors() {
    const Json& format = in_.At("format");
    if (format != "float-quantized" && format != "naive-quantized" && format != "int-quantized") {
      in_.Refuse("format", "\"float-quantized\", \"naive-quantized\", \"int-quantized\"");
      PassAllOver();
      return {};
    }
    Groups();
    KeyValues("kv_cache_scheme");
    Sparsity();
    AllowEmpty(in_, "transform_config");
    PassOver(in_, {"global_compression_ratio", "quantization_status", "version"});
    return Modules({"ignore"});
  }

  ModuleList Fp8() {
    const bool blocks = in_.Has("weight_block_size");
    const std::string scheme = in_.String("activation_scheme", "dynamic");
    if (blocks) {
      Allow(in_, "weight_block_size", kBlock());
      Allow(in_, "activation_scheme", "dynamic");
      // Of activations: powers of two, which their own scales here need not be.
      Allow(in_, "scale_fmt", "ue8m0");
      read_.encoding = Encoding::kFp8Blocks;
      read_.scale_suffix = ".weight_scale_inv";
    } else if (scheme != "dynamic" && scheme != "static") {
      in_.Refuse("activation_scheme", "\"dynamic\", \"static\"");
    }
    Allow(in_, "fmt", "e4m3");
    KeyValues("kv_cache_scheme");
    return Modules({"ignored_layers", "modules_to_not_convert"});
  }

  ModuleList ModelOpt(const char* exceptions, const char* key_values) {
    Demand(in_, "quant_algo", "FP8");
    if (in_.num_faults() > 0) {
      PassAllOver();
      return {};
    }
    if (in_.Has("config_groups")) Groups();
    KeyValues(key_values);
    PassOver(in_, {"producer", "quantization_status", "version"});
    return Modules({exceptions});
  }

  // One group, of all linear layers.
  void Groups() {
    const Json& groups = in_.At("config_groups");
    if (!groups.is_object() || groups.size() != 1) {
      in_.Refuse("config_groups", "an object with one group");
      return;
    }
    ConfigReader group(*groups.begin(), absl::StrCat(in_.where(), ": \"config_groups\""));
    Demand(group, "targets", Json::array({"Linear"}));
    Allow(group, "format", in_.At("format"));
    const bool integers = in_.At("format") == "int-quantized";
    Inner(group, "weights", [&](ConfigReader& in) { read_.encoding = ReadWeights(in, integers); });
    // Products of integers have two factors of integers.
    if (integers || group.Has("input_activations")) {
      Inner(group, "input_activations",
            [this](ConfigReader& in) { ReadActivations(in, read_.encoding); });
    }
    AllowEmpty(group, "output_activations");
    RefuseUnreadKeys(group);
    in_.Adopt(group.status());
  }

  // KV has the type of --kv-cache-dtype, so that a scheme of 8-bit floats may be passed over.
  void KeyValues(const char* key) {
    const Json& scheme = in_.At(key);
    if (!scheme.is_object()) {
      const bool known = scheme.is_null() || scheme == "FP8" || scheme == "static";
      if (!known) in_.Refuse(key, "null, \"FP8\", \"static\" or an object");
      return;
    }
    Inner(in_, key, [](ConfigReader& in) {
      ReadEightBit(in, "float");
      PassOver(in, {"dynamic", "strategy"});
      RefuseUnreadKeys(in);
    });
  }

  void Sparsity() {
    if (!in_.Has("sparsity_config") || in_.At("sparsity_config").empty()) return;
    Inner(in_, "sparsity_config", [](ConfigReader& in) { Demand(in, "format", "dense"); });
  }

  template <typename Read>
  void Inner(ConfigReader& in, const char* key, Read read) {
    ConfigReader inner(in.At(key), absl::StrCat(in.where(), ": \"", key, "\""));
    if (inner.num_faults() == 0) read(inner);
    in.Adopt(inner.status());
  }

  ModuleList Modules(std::initializer_list<const char*> keys) {
    ModuleList modules;
    for (const char* key : keys) {
      if (!in_.Has(key)) continue;
      const Json& list = in_.At(key);
      if (!list.is_array() || !std::ranges::all_of(list, &Json::is_string)) {
        in_.Refuse(key, "a list of names of modules");
        continue;
      }
      for (const Json& entry : list) {
        const absl::Status added = modules.Add(entry.get<std::string>());
        if (!added.ok()) in_.Fail(absl::StrCat("\"", key, "\": ", std::string(added.message())));
      }
    }
    return modules;
  }

  // Of another format, whose keys are no faults of their own.
  void PassAllOver() {
    for (const std::string& key : in_.UnreadKeys()) in_.Contains(key.c_str());
  }

  ConfigReader& in_;
  Description read_;
};

// Modules that are 8-bit together or not at all: one matrix of the decoder makes their outputs, or
// in parallel blocks they have one input. Of a layer, in the order of the decoder.
std::vector<std::vector<std::string>> ModulesOfLayer(const TensorNames& names, bool parallel_blocks,
                                                     int32_t layer) {
  const auto named = [&](std::initializer_list<std::string_view> modules) {
    std::vector<std::string> fused;
    for (const std::string_view module : modules) {
      if (module.empty()) continue;
      fused.push_back(absl::StrCat(std::string(names.root), std::string(names.layers), layer, ".",
                                   std::string(module)));
    }
    return fused;
  };
  std::vector<std::string> qkv =
      names.qkv.empty() ? named({names.q, names.k, names.v}) : named({names.qkv});
  std::vector<std::string> gate_up =
      names.gate_up.empty() ? named({names.gate, names.up}) : named({names.gate_up});
  if (parallel_blocks) {
    qkv.insert(qkv.end(), gate_up.begin(), gate_up.end());
    return {qkv, named({names.o}), named({names.down})};
  }
  return {qkv, named({names.o}), gate_up, named({names.down})};
}

// The modules of the decoder that `exceptions` cover.
absl::StatusOr<std::set<std::string, std::less<>>> WideModules(const ModuleList& exceptions,
                                                               const Family& family,
                                                               const ModelConfig& model) {
  std::set<std::string, std::less<>> wide;
  for (int32_t layer = 0; layer < model.num_layers; ++layer) {
    for (const std::vector<std::string>& fused :
         ModulesOfLayer(family.names, model.facts.parallel_blocks, layer)) {
      std::vector<std::string> covered;
      for (const std::string& module : fused) {
        ASSIGN_OR_RETURN(const bool is_wide, exceptions.Covers(module));
        if (is_wide) covered.push_back(module);
      }
      wide.insert(covered.begin(), covered.end());
      if (covered.empty() || covered.size() == fused.size()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", covered.back(), "\" is not quantized and another of ", absl::StrJoin(fused, ", "),
          " is; they are one matrix here or have one input: supported: all of them, or none"));
    }
  }
  return wide;
}

void Take(ConfigReader& in, const Description& read, const Family* family, ModelConfig& out) {
  if (in.num_faults() > 0 || family == nullptr) return;
  const int64_t widest = std::max<int64_t>(
      {out.hidden_size, out.intermediate_size, int64_t{out.num_heads} * out.head_dim});
  if (read.encoding == Encoding::kInt8Rows && widest > kMaxIntegerColumns) {
    return in.Fail(absl::StrCat("a matrix has ", widest, " columns; sums of 8-bit integers take ",
                                kMaxIntegerColumns));
  }
  absl::StatusOr<std::set<std::string, std::less<>>> wide = WideModules(read.wide, *family, out);
  if (!wide.ok()) {
    in.Fail(std::string(wide.status().message()));
    return;
  }
  out.quantization = {.source = Quantization::Source::kStored,
                      .encoding = read.encoding,
                      .scale_suffix = read.scale_suffix,
                      .wide = *std::move(wide)};
}

}  // namespace

void ReadQuantization(ConfigReader& in, const Family* family, ModelConfig& out) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (!in.Has(key)) continue;
    ConfigReader inner(in.At(key), absl::StrCat(in.where(), ": \"", key, "\""));
    if (inner.num_faults() == 0) {
      Take(inner, QuantizationReader(inner).Read(), family, out);
    }
    in.Adopt(inner.status());
  }
}

absl::Status ReadQuantizationFile(const std::string& path, const Family& family, ModelConfig& out) {
  const absl::StatusOr<Json> json = ReadJsonFile(path);
  if (absl::IsNotFound(json.status()) || !out.quantization.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(json.status());
  ConfigReader file(*json, path);
  ConfigReader in(file.At("quantization"), absl::StrCat(path, ": \"quantization\""));
  if (in.num_faults() == 0 && in.Has("quant_algo")) {
    Take(in, QuantizationReader(in).ReadFile(), &family, out);
  }
  return in.status();
}

absl::Status ChooseQuantization(const std::string& setting, ModelConfig& model) {
  const bool stored = model.quantization.source == Quantization::Source::kStored;
  if (setting == "none" && stored) {
    return absl::InvalidArgumentError(
        "--quantization none: the model's matrices are stored with 8 bits; use auto, or give "
        "--model the checkpoint that they were made from");
  }
  const bool integers = stored && model.quantization.dtype() == DType::kI8;
  if (setting == QuantizationName(model)) return absl::OkStatus();
  if (setting == "fp8" && integers) {
    return absl::InvalidArgumentError(
        "--quantization fp8: the model's matrices are stored as int8; use auto, or give --model "
        "the "
        "checkpoint that they were made from");
  }
  if (setting == "fp8") {
    if (!stored) model.quantization.source = Quantization::Source::kWhileLoading;
    return absl::OkStatus();
  }
  if (setting == "auto" || setting == "none") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--quantization ", setting, " is unknown; use auto, none or fp8"));
}

std::string QuantizationName(const ModelConfig& model) {
  if (model.quantization.empty()) return "none";
  return model.quantization.dtype() == DType::kI8 ? "int8" : "fp8";
}

std::string EncodingText(const Quantization& quantization) {
  if (quantization.empty()) return "none";
  switch (quantization.encoding) {
    case Encoding::kFp8Rows: return "fp8, a scale for each row";
    case Encoding::kFp8Blocks: return "fp8, a scale for each 128 x 128 block";
    case Encoding::kInt8Rows: return "int8, a scale for each row";
  }
  return "?";
}

}  // namespace quire
