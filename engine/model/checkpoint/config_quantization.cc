// From descriptions to the matrices of a model, and from --quantization.
#include "engine/model/checkpoint/config_quantization.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/model/checkpoint/families.h"
#include "engine/model/checkpoint/model_config.h"
#include "engine/model/checkpoint/quantization_description.h"
#include "engine/model/config/module_list.h"
#include "kernels/ops.h"
#include "kernels/packed_row.h"

namespace quire {
namespace {

using Json = nlohmann::json;

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

// Whether an exception covers a module, by its name in the file or under the other root that files
// of the family have: writers name modules as their program does.
absl::StatusOr<bool> Covers(const ModuleList& exceptions, const TensorNames& family,
                            std::string_view root, const std::string& module) {
  ASSIGN_OR_RETURN(const bool covered, exceptions.Covers(module));
  if (covered) return true;
  const std::string within = module.substr(root.size());
  for (const std::string_view other : {family.root, family.other_root}) {
    if (other.empty() || other == root) continue;
    ASSIGN_OR_RETURN(const bool is_wide,
                     exceptions.CoversAlias(absl::StrCat(std::string(other), within)));
    if (is_wide) return true;
  }
  return false;
}

// The modules of the decoder that `exceptions` cover.
absl::StatusOr<std::set<std::string, std::less<>>> WideModules(const ModuleList& exceptions,
                                                               const TensorNames& family,
                                                               const ModelConfig& model) {
  std::set<std::string, std::less<>> wide;
  for (int32_t layer = 0; layer < model.num_layers; ++layer) {
    for (const std::vector<std::string>& fused :
         ModulesOfLayer(model.names, model.facts.parallel_blocks, layer)) {
      std::vector<std::string> covered;
      for (const std::string& module : fused) {
        ASSIGN_OR_RETURN(const bool is_wide, Covers(exceptions, family, model.names.root, module));
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

void Take(ConfigReader& in, const QuantizationDescription& read, const Family* family,
          ModelConfig& out) {
  if (in.num_faults() > 0 || family == nullptr) return;
  const int64_t widest = std::max<int64_t>(
      {out.hidden_size, out.intermediate_size, int64_t{out.num_heads} * out.head_dim});
  if (read.encoding == Encoding::kInt8Rows && widest > kMaxIntegerColumns) {
    return in.Fail(absl::StrCat("a matrix has ", widest, " columns; sums of 8-bit integers take ",
                                kMaxIntegerColumns));
  }
  absl::StatusOr<std::set<std::string, std::less<>>> wide =
      WideModules(read.wide, family->names, out);
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
      Take(inner, ReadDescription(inner), family, out);
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
    Take(in, ReadModelOptFile(in), &family, out);
  }
  return in.status();
}

absl::Status CheckNoOlderDescription(const std::string& dir, const ModelConfig& model) {
  if (!model.quantization.empty()) return absl::OkStatus();
  for (const char* name : {"quantize_config.json", "quant_config.json"}) {
    const std::string path = absl::StrCat(dir, "/", name);
    const absl::StatusOr<Json> json = ReadJsonFile(path);
    if (!json.ok() || !json->is_object()) continue;
    const bool is_narrow = std::ranges::any_of(std::array{"bits", "w_bit"}, [&](const char* key) {
      const auto bits = json->find(key);
      return bits != json->end() && bits->is_number() && *bits < kWideBits;
    });
    if (!is_narrow) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": describes narrow matrices, and config.json does not; put its keys into "
        "config.json as \"quantization_config\", with \"quant_method\" \"gptq\" or \"awq\""));
  }
  return absl::OkStatus();
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
