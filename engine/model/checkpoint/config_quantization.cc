// The ways in which published checkpoints describe narrow matrices, each read strictly: a key that
// is not known could change results.
#include "engine/model/checkpoint/config_quantization.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/model/checkpoint/model_config.h"
#include "engine/model/checkpoint/module_list.h"
#include "kernels/ops.h"
#include "kernels/packed_row.h"

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr char kServed[] =
    "\"compressed-tensors\", \"fp8\" and \"modelopt\" with 8-bit floats and one scale for each "
    "row, "
    "matrix or block of 128 x 128, \"compressed-tensors\", \"awq\" and \"gptq\" with integers and "
    "wide inputs, or weights in float32, bfloat16 or float16";
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
// A key without a value says nothing: writers name all that they know.
void RefuseUnreadKeys(ConfigReader& in) {
  for (const std::string& key : in.UnreadKeys()) {
    if (in.Has(key.c_str())) in.Fail(absl::StrCat("unknown key \"", key, "\""));
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

// Of GPTQ and AWQ: how the writer found the integers, and which kernels another program takes.
// Zeros are stored whether they are all the same (sym) or not.
constexpr char kOfOtherPrograms[] =
    "act_group_aware amp autoround_version backend batch_size block_name_to_quantize "
    "cache_block_outputs damp_auto_increment damp_percent dataset disable_exllama "
    "enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input exllama_config "
    "gradient_accumulate_steps hyb_act iters low_gpu_mem_usage lr max_input_length meta method "
    "minmax_lr model_file_base_name model_name_or_path model_seqlen "
    "module_name_preceding_first_block mse nsamples pad_token_id provider scale_dtype seqlen "
    "static_groups sym tokenizer true_sequential use_cuda_fp16 use_exllama";

constexpr char kServedGroups[] = "32, 64, 128";

// The columns that share a scale: a group of columns, or with -1 all of a row.
int32_t ReadGroup(ConfigReader& in, const char* key) {
  const Json& group = in.At(key);
  if (group == -1) return 0;
  if (group == 32 || group == 64 || group == 128) return group.get<int32_t>();
  in.Refuse(key, absl::StrCat("-1, ", kServedGroups));
  return 0;
}

int32_t ReadBits(ConfigReader& in, const char* key) {
  if (in.At(key) == 4 || in.At(key) == 8) return in.At(key).get<int32_t>();
  in.Refuse(key, "4, 8");
  return 4;
}

// Weights of compressed-tensors that are integers.
void ReadIntegers(ConfigReader& in, IntegerFormat& out) {
  Demand(in, "type", "int");
  out.bits = ReadBits(in, "num_bits");
  out.has_zeros = !in.Bool("symmetric", true);
  const Json& strategy = in.At("strategy");
  if (strategy == "group") {
    out.group = ReadGroup(in, "group_size");
  } else if (strategy == "channel") {
    if (in.Has("group_size") && in.At("group_size") != -1) in.Refuse("group_size", "null");
  } else {
    in.Refuse("strategy", "\"group\", \"channel\"");
  }
  const Json& order = in.At("actorder");
  out.any_order = order == "group" || order == "dynamic" || order == true;
  const bool sorted = order.is_null() || order == false || order == "weight" || order == "static";
  if (!out.any_order && !sorted) {
    in.Refuse("actorder", "null, \"group\", \"weight\", \"static\", \"dynamic\"");
  }
  Allow(in, "dynamic", false);
  AllowEmpty(in, "block_structure");
  PassOver(in, {"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
  RefuseUnreadKeys(in);
}

// A description's statement of the matrices.
struct Description {
  ModuleList wide;  // modules that are not narrow
  std::optional<IntegerFormat> integers;
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
    } else if (method == "awq") {
      read_.wide = Awq();
    } else if (method == "gptq") {
      read_.wide = Gptq();
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
    const bool floats = format == "float-quantized" || format == "naive-quantized";
    if (!floats && format != "pack-quantized" && format != "int-quantized") {
      in_.Refuse("format",
                 "\"float-quantized\", \"naive-quantized\", \"pack-quantized\", "
                 "\"int-quantized\"");
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
      // "ue8m0" is of activations: powers of two, which their own scales here need not be.
      if (in_.At("scale_fmt") != "float") Allow(in_, "scale_fmt", "ue8m0");
      read_.encoding = Encoding::kFp8Blocks;
      read_.scale_suffix = ".weight_scale_inv";
    } else if (scheme != "dynamic" && scheme != "static") {
      in_.Refuse("activation_scheme", "\"dynamic\", \"static\"");
    }
    Allow(in_, "fmt", "e4m3");
    Allow(in_, "dequantize", false);
    AllowEmpty(in_, "modules_to_convert");
    PassOver(in_, {"expert_dtype"});
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

  ModuleList Awq() {
    read_.integers = {.packing = IntegerFormat::Packing::kAwq, .has_zeros = true};
    // Older releases of the writer name keys otherwise.
    Demand(in_, in_.Has("w_bit") ? "w_bit" : "bits", 4);
    read_.integers->group = ReadGroup(in_, in_.Has("q_group_size") ? "q_group_size" : "group_size");
    Demand(in_, "zero_point", true);
    ReadLayout("version", {"gemm"});
    // The kernels of another program, but for one that names a packing.
    if (in_.At("backend") == "llm-awq") in_.Refuse("backend", "\"autoawq\", \"auto\"");
    Allow(in_, "desc_act", false);
    OfBothPackings();
    PassOver(in_, {"do_fuse", "fuse_max_seq_len", "modules_to_fuse"});
    return Fragments("modules_to_not_convert");
  }

  ModuleList Gptq() {
    read_.integers = {.packing = IntegerFormat::Packing::kGptq, .has_zeros = true};
    read_.integers->bits = ReadBits(in_, "bits");
    read_.integers->group = ReadGroup(in_, "group_size");
    read_.integers->any_order = in_.Bool("desc_act", false);
    const bool named = in_.Has("checkpoint_format") || in_.Has("format");
    const std::string layout =
        named ? ReadLayout("checkpoint_format", {"gptq", "gptq_v2"}) : "gptq";
    read_.integers->zeros_less_one = layout == "gptq";
    OfBothPackings();
    return {};
  }

  // How the integers lie in the file: one of `layouts`. Writers name it under `key`, "format" or
  // "checkpoint_format", or under several, which have to agree.
  std::string ReadLayout(const char* key, const std::vector<std::string>& layouts) {
    std::string layout;
    for (const char* name : {key, "format", "checkpoint_format"}) {
      if (in_.Has(name)) {
        const std::string value = absl::AsciiStrToLower(in_.String(name, ""));
        const bool known = std::ranges::find(layouts, value) != layouts.end();
        if (!known || (!layout.empty() && value != layout)) RefuseLayout(name, layouts);
        layout = value;
      }
    }
    if (layout.empty()) RefuseLayout(key, layouts);
    return layout;
  }
  void RefuseLayout(const char* key, const std::vector<std::string>& layouts) {
    in_.Refuse(key, absl::StrCat("\"", absl::StrJoin(layouts, "\", \""), "\""));
  }

  // Keys of GPTQ and AWQ: today's transformers and GPTQModel write one class of them, and AutoRound
  // adds its own.
  void OfBothPackings() {
    Allow(in_, "is_marlin_format", false);
    Allow(in_, "lm_head", false);
    Allow(in_, "pack_dtype", "int32");
    Allow(in_, "data_type", "int");
    AllowEmpty(in_, "dynamic");
    AllowEmpty(in_, "modules_in_block_to_quantize");
    for (const auto& key : absl::StrSplit(kOfOtherPrograms, ' ')) {
      in_.Contains(std::string(key).c_str());
    }
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
    const bool narrow_inputs = group.Has("input_activations");
    if (HoldsIntegers(group) && !(narrow_inputs && in_.At("format") == "int-quantized")) {
      read_.integers.emplace();
      if (in_.At("format") != "pack-quantized") {
        read_.integers->packing = IntegerFormat::Packing::kPlain;
      }
      Inner(group, "weights", [this](ConfigReader& in) {
        ReadIntegers(in, *read_.integers);
        if (read_.integers->packing == IntegerFormat::Packing::kPlain) Demand(in, "num_bits", 8);
      });
      AllowEmpty(group, "input_activations");
    } else {
      const bool integers = in_.At("format") == "int-quantized";
      Inner(group, "weights",
            [&](ConfigReader& in) { read_.encoding = ReadWeights(in, integers); });
      if (narrow_inputs) {
        Inner(group, "input_activations",
              [this](ConfigReader& in) { ReadActivations(in, read_.encoding); });
      }
    }
    AllowEmpty(group, "output_activations");
    RefuseUnreadKeys(group);
    in_.Adopt(group.status());
  }

  // Whether the description is one of integers, right or wrong.
  bool HoldsIntegers(ConfigReader& group) const {
    const Json& format = in_.At("format");
    if (format == "pack-quantized" || format == "int-quantized") return true;
    const Json& weights = group.At("weights");
    if (format != "naive-quantized" || !weights.is_object()) return false;
    const auto type = weights.find("type");
    return type != weights.end() && *type == "int";
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
      for (const std::string& entry : Names(key)) {
        const absl::Status added = modules.Add(entry);
        if (!added.ok()) in_.Fail(absl::StrCat("\"", key, "\": ", std::string(added.message())));
      }
    }
    return modules;
  }
  // Entries that stand for every module whose name contains one.
  ModuleList Fragments(const char* key) {
    ModuleList modules;
    for (const std::string& entry : Names(key)) modules.AddFragment(entry);
    return modules;
  }
  std::vector<std::string> Names(const char* key) {
    if (!in_.Has(key)) return {};
    const Json& list = in_.At(key);
    if (list.is_array() && std::ranges::all_of(list, &Json::is_string)) {
      return list.get<std::vector<std::string>>();
    }
    in_.Refuse(key, "a list of names of modules");
    return {};
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
                                                               const ModelConfig& model) {
  std::set<std::string, std::less<>> wide;
  for (int32_t layer = 0; layer < model.num_layers; ++layer) {
    for (const std::vector<std::string>& fused :
         ModulesOfLayer(model.names, model.facts.parallel_blocks, layer)) {
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
  absl::StatusOr<std::set<std::string, std::less<>>> wide = WideModules(read.wide, out);
  if (!wide.ok()) {
    in.Fail(std::string(wide.status().message()));
    return;
  }
  out.quantization = {.source = Quantization::Source::kStored,
                      .encoding = read.encoding,
                      .scale_suffix = read.scale_suffix,
                      .integers = read.integers,
                      .wide = *std::move(wide)};
  const absl::Status shapes = CheckIntegerShapes(out, 1);
  if (!shapes.ok()) in.Fail(std::string(shapes.message()));
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
  const std::string name = QuantizationName(model);
  if (setting == "auto" || (stored && setting == name)) return absl::OkStatus();
  if ((setting == "none" || setting == "fp8") && stored) {
    return absl::InvalidArgumentError(
        absl::StrCat("--quantization ", setting, ": the model's matrices are stored as ",
                     name == "fp8" ? "8-bit floats" : "integers (" + name + ")",
                     "; use auto, or give --model the checkpoint that they were made from"));
  }
  if (setting == "none") return absl::OkStatus();
  if (setting == "int4" || setting == "int8") {
    return absl::InvalidArgumentError(absl::StrCat("--quantization ", setting,
                                                   ": the model's matrices are not stored so, but ",
                                                   "as ", name, "; use auto"));
  }
  if (setting == "fp8") {
    model.quantization.source = Quantization::Source::kWhileLoading;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--quantization ", setting, " is unknown; use auto, none or fp8"));
}

std::string QuantizationName(const ModelConfig& model) {
  if (model.quantization.empty()) return "none";
  if (model.quantization.integers.has_value()) {
    return absl::StrCat("int", model.quantization.integers->bits);
  }
  return model.quantization.dtype() == DType::kI8 ? "int8" : "fp8";
}

std::string EncodingText(const Quantization& quantization) {
  if (quantization.empty()) return "none";
  if (quantization.integers.has_value()) {
    const IntegerFormat& format = *quantization.integers;
    return absl::StrCat("int", format.bits, ", a scale for each ",
                        format.group == 0 ? "row" : absl::StrCat(format.group, " columns"));
  }
  switch (quantization.encoding) {
    case Encoding::kFp8Rows: return "fp8, a scale for each row";
    case Encoding::kFp8Blocks: return "fp8, a scale for each 128 x 128 block";
    case Encoding::kInt8Rows: return "int8 with 8-bit inputs, a scale for each row";
  }
  return "?";
}

absl::Status CheckIntegerShapes(const ModelConfig& model, int32_t ranks) {
  const std::optional<IntegerFormat>& format = model.quantization.integers;
  if (!format.has_value()) return absl::OkStatus();
  if (format->any_order && ranks > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor-parallel-size ", ranks,
                     ": columns of the matrices are grouped in any order (desc_act, actorder), so "
                     "inputs cannot be split among ranks; it runs on 1 rank only"));
  }
  const int32_t multiple = format->group == 0 ? kPackedColumns : format->group;
  const auto check = [&](const char* what, int64_t width, int64_t of) -> absl::Status {
    if (width % of == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        what, " ", width, ranks > 1 && width != model.hidden_size ? " of a rank" : "",
        ": matrices of ", QuantizationName(model), " take multiples of ", of,
        ranks > 1 ? "; lower --tensor-parallel-size " : "", ranks > 1 ? absl::StrCat(ranks) : ""));
  };
  const int64_t heads = int64_t{model.num_heads} / ranks * model.head_dim;
  RETURN_IF_ERROR(check("hidden_size", model.hidden_size, multiple));
  RETURN_IF_ERROR(check("num_attention_heads * head_dim", heads, multiple));
  RETURN_IF_ERROR(check("intermediate_size", model.intermediate_size / ranks, multiple));
  const int64_t kv_heads = int64_t{model.num_kv_heads} * model.head_dim;
  constexpr int64_t kWord = 8;  // rows that share a word of a zero or of a column
  if (kv_heads % kWord == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("num_key_value_heads * head_dim ", kv_heads,
                                                 ": matrices of ", QuantizationName(model),
                                                 " take multiples of ", kWord));
}

}  // namespace quire
