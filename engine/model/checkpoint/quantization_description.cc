// The ways in which published checkpoints describe narrow matrices, each read strictly: a key that
// is not known could change results.
#include "engine/model/checkpoint/quantization_description.h"

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
#include "kernels/row_scale.h"

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr char kServed[] =
    "\"compressed-tensors\", \"fp8\" and \"modelopt\" with 8-bit floats and one scale for each "
    "row, matrix or block of 128 x 128, \"compressed-tensors\", \"awq\", \"gptq\" and "
    "\"auto-round\" with integers and wide inputs, or weights in float32, bfloat16 or float16";
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

constexpr int kNoGroup = -1;  // as group_size: all of a row

// Weights, or the inputs of their products, or keys and values: symmetric and of 8 bits, without
// groups or blocks but for the key `read`.
void ReadEightBit(ConfigReader& in, const char* type, const char* read = nullptr) {
  Demand(in, "num_bits", 8);
  Demand(in, "type", type);
  Allow(in, "symmetric", true);
  for (const char* key : {"group_size", "block_structure", "actorder"}) {
    const bool is_read = read != nullptr && std::string_view(key) == read;
    const bool is_none = std::string_view(key) == "group_size" && in.At(key) == kNoGroup;
    if (!is_read && !is_none) AllowEmpty(in, key);
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
constexpr char kOfOtherPrograms[] =
    "act_data_type act_dynamic act_group_aware act_group_size act_sym amp autoround_version "
    "backend batch_size block_name_to_quantize "
    "cache_block_outputs damp_auto_increment damp_percent dataset disable_exllama "
    "enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input exllama_config "
    "gradient_accumulate_steps hyb_act iters low_gpu_mem_usage lr max_input_length meta method "
    "minmax_lr model_file_base_name model_free model_name_or_path model_seqlen "
    "module_name_preceding_first_block mse nsamples pad_token_id provider scale_dtype seqlen "
    "static_groups sym to_quant_block_names tokenizer true_sequential use_cuda_fp16 use_exllama";

constexpr char kServedGroups[] = "32, 64, 128";

// The columns that share a scale: a group of columns, or with -1 all of a row.
int32_t ReadGroup(ConfigReader& in, const char* key) {
  const Json& group = in.At(key);
  if (group == kNoGroup) return 0;
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
    if (in.At("group_size") != kNoGroup) AllowEmpty(in, "group_size");
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

class DescriptionReader {
 public:
  explicit DescriptionReader(ConfigReader& in) : in_(in) {}

  // Reads the object of config.json.
  QuantizationDescription Read() {
    std::string method = in_.String("quant_method", "");
    // Older releases of ModelOpt name themselves otherwise.
    if (method.empty() && in_.At("quant_library") == "modelopt") method = "modelopt";
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
    } else if (method == "auto-round") {
      read_.wide = AutoRound();
    } else {
      if (in_.num_faults() == 0) in_.Refuse("quant_method", kServed);
      return std::move(read_);
    }
    RefuseUnreadKeys(in_);
    return std::move(read_);
  }
  // Reads the object of hf_quant_config.json.
  QuantizationDescription ReadFile() {
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
    Groups(/*may_lack_targets=*/false);
    KeyValues("kv_cache_scheme");
    Sparsity();
    AllowEmpty(in_, "transform_config");
    PassOver(in_, {"global_compression_ratio", "provider", "quantization_status", "version"});
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
    return Modules({"ignored_layers", "modules_to_not_convert"}, /*endings=*/true);
  }

  ModuleList ModelOpt(const char* exceptions, const char* key_values) {
    Demand(in_, "quant_algo", "FP8");
    if (in_.num_faults() > 0) {
      PassAllOver();
      return {};
    }
    if (in_.Has("config_groups")) Groups(/*may_lack_targets=*/true);
    KeyValues(key_values);
    PassOver(in_, {"producer", "quant_library", "quantization_status", "version"});
    return Modules({exceptions});
  }

  ModuleList Awq() {
    read_.integers = {.packing = IntegerFormat::Packing::kAwq, .has_zeros = true};
    // Older releases of the writer name keys otherwise.
    Demand(in_, in_.Has("w_bit") ? "w_bit" : "bits", 4);
    read_.integers->group = ReadGroup(in_, in_.Has("q_group_size") ? "q_group_size" : "group_size");
    if (!in_.At("zero_point").is_boolean()) in_.Refuse("zero_point", "true, false");
    read_.integers->symmetric = in_.At("zero_point") == false;
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
    read_.integers->symmetric = in_.Bool("sym", false);
    OfBothPackings();
    return {};
  }

  // AutoRound's own description of the tensors of GPTQ's first form, or of AWQ.
  ModuleList AutoRound() {
    const Json& packing = in_.At("packing_format");
    const bool is_awq = packing == "auto_round:auto_awq";
    if (!is_awq) Demand(in_, "packing_format", "auto_round:auto_gptq");
    read_.integers = {
        .packing = is_awq ? IntegerFormat::Packing::kAwq : IntegerFormat::Packing::kGptq,
        .has_zeros = true,
        .zeros_less_one = !is_awq};
    read_.integers->bits = ReadBits(in_, "bits");
    if (is_awq) Demand(in_, "bits", 4);
    read_.integers->group = ReadGroup(in_, "group_size");
    read_.integers->symmetric = in_.Bool("sym", true);
    OfBothPackings();
    ModuleList wide;
    if (in_.Has("extra_config")) {
      Inner(in_, "extra_config", [&](ConfigReader& in) { wide = WideModules(in); });
    }
    return wide;
  }
  // Of an object of modules with settings of their own: those that stay wide. No other is served.
  ModuleList WideModules(ConfigReader& in) {
    ModuleList wide;
    for (const std::string& module : in.UnreadKeys()) {
      Inner(in, module.c_str(), [&](ConfigReader& settings) {
        const Json& bits = settings.At("bits");
        if (!bits.is_number_integer() || bits < kWideBits) settings.Refuse("bits", "16 or more");
      });
      if (module.find_first_of("*^$()[]|\\+?") != module.npos) {
        in.Fail(absl::StrCat("\"", module, "\": supported: names of modules, no patterns"));
      }
      wide.AddEnding(module);
    }
    return wide;
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
    const Json& inputs = in_.At("act_bits");
    if (!inputs.is_null() && !(inputs.is_number_integer() && inputs >= kWideBits)) {
      in_.Refuse("act_bits", "null, 16 or more");
    }
    for (const auto& key : absl::StrSplit(kOfOtherPrograms, ' ')) {
      in_.Contains(std::string(key).c_str());
    }
  }

  // One group, of all linear layers. Older releases of ModelOpt do not say of which.
  void Groups(bool may_lack_targets) {
    const Json& groups = in_.At("config_groups");
    if (!groups.is_object() || groups.size() != 1) {
      in_.Refuse("config_groups", "an object with one group");
      return;
    }
    ConfigReader group(*groups.begin(), absl::StrCat(in_.where(), ": \"config_groups\""));
    const Json linear = Json::array({"Linear"});
    if (may_lack_targets) {
      Allow(group, "targets", linear);
    } else {
      Demand(group, "targets", linear);
    }
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

  // With `endings` an entry may also be the end of a module's name.
  ModuleList Modules(std::initializer_list<const char*> keys, bool endings = false) {
    ModuleList modules;
    for (const char* key : keys) {
      for (const std::string& entry : Names(key)) {
        if (endings) modules.AddEnding(entry);
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
  QuantizationDescription read_;
};

}  // namespace

QuantizationDescription ReadDescription(ConfigReader& in) { return DescriptionReader(in).Read(); }

QuantizationDescription ReadModelOptFile(ConfigReader& in) {
  return DescriptionReader(in).ReadFile();
}

}  // namespace quire
