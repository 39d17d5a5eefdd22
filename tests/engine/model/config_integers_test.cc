// Matrices of integers as published checkpoints describe them: the objects that AutoAWQ, AutoGPTQ,
// GPTQModel, AutoRound and llm-compressor write into config.json, and all else refused by name.
// Covers engine/model/checkpoint/quantization_description.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/model/checkpoint/config_quantization.h"
#include "engine/model/checkpoint/model_config.h"
#include "nlohmann/json.hpp"
#include "tests/engine/model/temp_dir.h"

namespace quire::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Packing = IntegerFormat::Packing;

absl::StatusOr<ModelConfig> Load(const json& quantization) {
  const TempDir dir;
  const json config = {{"architectures", {"LlamaForCausalLM"}},
                       {"hidden_size", 256},
                       {"intermediate_size", 256},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 4},
                       {"vocab_size", 256},
                       {"torch_dtype", "float16"},
                       {"quantization_config", quantization}};
  dir.Write("config.json", config.dump());
  return ModelConfig::Load(dir.path());
}

IntegerFormat Good(const json& quantization) {
  const absl::StatusOr<ModelConfig> model = Load(quantization);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  EXPECT_EQ(model->quantization.source, Quantization::Source::kStored);
  EXPECT_FALSE(model->quantization.eight_bit());
  EXPECT_TRUE(model->quantization.IsInteger("model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(model->quantization.IsEightBit("model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(model->quantization.integers.has_value());
  return model->quantization.integers.value_or(IntegerFormat());
}

// The message for an object changed by a JSON patch of one value.
std::string Refusal(json quantization, const char* pointer, const json& value) {
  quantization[json::json_pointer(pointer)] = value;
  const absl::Status status = Load(quantization).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pointer;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/config.json: \"quantization_config\""));
  return std::string(status.message());
}

// As llm-compressor 0.4 writes W4A16.
json CompressedTensors() {
  return json::parse(R"({
    "config_groups": {"group_0": {
      "input_activations": null, "output_activations": null, "targets": ["Linear"],
      "weights": {"actorder": null, "block_structure": null, "dynamic": false, "group_size": 128,
        "num_bits": 4, "observer": "minmax", "observer_kwargs": {}, "strategy": "group",
        "symmetric": true, "type": "int"}}},
    "format": "pack-quantized", "global_compression_ratio": null, "ignore": ["lm_head"],
    "kv_cache_scheme": null, "quant_method": "compressed-tensors",
    "quantization_status": "compressed"})");
}

// As AutoAWQ 0.2 writes it through transformers.
json Awq() {
  return json::parse(R"({"backend": "autoawq", "bits": 4, "do_fuse": false, "exllama_config": null,
    "fuse_max_seq_len": null, "group_size": 128, "modules_to_fuse": null,
    "modules_to_not_convert": null, "quant_method": "awq", "version": "gemm",
    "zero_point": true})");
}

// As AutoGPTQ 0.7 writes it.
json Gptq() {
  return json::parse(R"({"bits": 4, "checkpoint_format": "gptq", "damp_percent": 0.01,
    "desc_act": true, "group_size": 128, "is_marlin_format": false, "model_file_base_name": null,
    "model_name_or_path": null, "quant_method": "gptq", "static_groups": false, "sym": true,
    "true_sequential": true})");
}

TEST(ConfigIntegersTest, CompressedTensors) {
  IntegerFormat read = Good(CompressedTensors());
  EXPECT_EQ(read.packing, Packing::kCompressedTensors);
  EXPECT_EQ(read.bits, 4);
  EXPECT_EQ(read.group, 128);
  EXPECT_FALSE(read.has_zeros || read.any_order || read.zeros_less_one);
  json other = CompressedTensors();
  json& weights = other["config_groups"]["group_0"]["weights"];
  weights["symmetric"] = false;
  weights["actorder"] = "group";
  weights["group_size"] = 32;
  read = Good(other);
  EXPECT_TRUE(read.has_zeros && read.any_order);
  EXPECT_EQ(read.group, 32);
  for (const json& order : {json("weight"), json("static"), json(false)}) {
    weights["actorder"] = order;
    EXPECT_FALSE(Good(other).any_order) << order;
  }
  weights["actorder"] = "dynamic";
  EXPECT_TRUE(Good(other).any_order);
  // W8A16, one scale a row.
  weights =
      json::parse(R"({"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": true})");
  read = Good(other);
  EXPECT_EQ(read.dtype(), DType::kU8);
  EXPECT_EQ(read.group, 0);
  for (const char* format : {"int-quantized", "naive-quantized"}) {
    other["format"] = format;
    EXPECT_EQ(Good(other).packing, Packing::kPlain);
  }
  for (const json& type : {json(), json(8), json::array()}) {
    weights["type"] = type;
    EXPECT_FALSE(Load(other).ok()) << type;
  }
}

TEST(ConfigIntegersTest, Awq) {
  const IntegerFormat read = Good(Awq());
  EXPECT_EQ(read.packing, Packing::kAwq);
  EXPECT_EQ(read.dtype(), DType::kU4);
  EXPECT_EQ(read.group, 128);
  EXPECT_TRUE(read.has_zeros && !read.any_order && !read.zeros_less_one);
  // As its own writer names keys.
  EXPECT_EQ(Good(json::parse(R"({"quant_method": "awq", "zero_point": true, "q_group_size": 64,
                                 "w_bit": 4, "version": "GEMM"})"))
                .group,
            64);
  // As transformers 5 and GPTQModel write it.
  json today = Gptq();
  today.erase("checkpoint_format");
  today.merge_patch({{"quant_method", "awq"},
                     {"zero_point", true},
                     {"desc_act", false},
                     {"backend", "auto"},
                     {"format", "gemm"},
                     {"act_group_aware", true},
                     {"modules_to_not_convert", {"lm_head"}}});
  EXPECT_EQ(Good(today).packing, Packing::kAwq);
  EXPECT_THAT(Refusal(today, "/version", "gemv"), HasSubstr("\"version\" is \"gemv\""));
  EXPECT_THAT(Refusal(today, "/format", "gemv"), HasSubstr("\"format\" is \"gemv\""));
  EXPECT_THAT(Refusal(today, "/desc_act", true), HasSubstr("\"desc_act\" is true"));
  EXPECT_THAT(Refusal(today, "/lm_head", true), HasSubstr("\"lm_head\" is true"));
  EXPECT_FALSE(Good(today).symmetric);  // "sym" is of the other packing
  // As AutoRound writes symmetric ones.
  json symmetric = Awq();
  symmetric["zero_point"] = false;
  EXPECT_TRUE(Good(symmetric).symmetric && Good(symmetric).has_zeros);
  today.erase("format");
  EXPECT_THAT(Refusal(today, "/sym", true), HasSubstr("\"version\" is null"));
  // A module is wide if its name contains an exception.
  json wide = Awq();
  wide["modules_to_not_convert"] = {"layers.1.mlp", "lm_head"};
  EXPECT_THAT(Load(wide)->quantization.wide,
              UnorderedElementsAre("model.layers.1.mlp.gate_proj", "model.layers.1.mlp.up_proj",
                                   "model.layers.1.mlp.down_proj"));
}

TEST(ConfigIntegersTest, Gptq) {
  IntegerFormat read = Good(Gptq());
  EXPECT_EQ(read.packing, Packing::kGptq);
  EXPECT_EQ(read.group, 128);
  EXPECT_TRUE(read.has_zeros && read.any_order && read.zeros_less_one && read.symmetric);
  json other = Gptq();
  other["sym"] = false;
  EXPECT_FALSE(Good(other).symmetric);
  other.erase("sym");
  EXPECT_FALSE(Good(other).symmetric);
  other["checkpoint_format"] = "gptq_v2";
  other["desc_act"] = false;
  other["bits"] = 8;
  other["group_size"] = -1;
  other["meta"] = {{"quantizer", "gptqmodel:1.0"}};
  read = Good(other);
  EXPECT_EQ(read.bits, 8);
  EXPECT_EQ(read.group, 0);
  EXPECT_TRUE(!read.any_order && !read.zeros_less_one);
  other["format"] = "gptq_v2";  // as transformers 5 and GPTQModel write it
  EXPECT_FALSE(Good(other).zeros_less_one);
  EXPECT_THAT(Refusal(other, "/format", "gptq"), HasSubstr("\"format\" is \"gptq\""));
  other.erase("checkpoint_format");
  EXPECT_FALSE(Good(other).zeros_less_one);
  other.erase("format");  // the first form had no name
  EXPECT_TRUE(Good(other).zeros_less_one);
  // As AutoRound 0.4 writes it.
  EXPECT_FALSE(Good(json::parse(R"({"amp": true, "autoround_version": "0.4.3", "batch_size": 4,
    "bits": 4, "damp_percent": 0.01, "data_type": "int", "desc_act": false,
    "enable_minmax_tuning": true, "enable_quanted_input": true, "gradient_accumulate_steps": 2,
    "group_size": 128, "iters": 1000, "low_gpu_mem_usage": false, "lr": 0.001,
    "minmax_lr": 0.001, "nsamples": 512, "quant_method": "gptq",
    "scale_dtype": "torch.float16", "seqlen": 2048, "sym": true, "true_sequential": false})"))
                   .any_order);
}

// As AutoRound 0.14 writes its own description.
json AutoRound() {
  return json::parse(R"({"autoround_version": "0.14.2", "bits": 4, "data_type": "int",
    "extra_config": {"lm_head": {"bits": 16, "data_type": "float"},
                     "model.layers.1.mlp.down_proj": {"bits": 16, "data_type": "float"}},
    "group_size": 128, "iters": 0, "model_free": true,
    "packing_format": "auto_round:auto_gptq", "quant_method": "auto-round", "sym": true})");
}

TEST(ConfigIntegersTest, AutoRound) {
  IntegerFormat read = Good(AutoRound());
  EXPECT_EQ(read.packing, Packing::kGptq);
  EXPECT_EQ(read.group, 128);
  EXPECT_TRUE(read.has_zeros && read.zeros_less_one && read.symmetric && !read.any_order);
  EXPECT_THAT(Load(AutoRound())->quantization.wide,
              UnorderedElementsAre("model.layers.1.mlp.down_proj"));
  json other = AutoRound();
  other["packing_format"] = "auto_round:auto_awq";
  other["sym"] = false;
  read = Good(other);
  EXPECT_EQ(read.packing, Packing::kAwq);
  EXPECT_TRUE(read.has_zeros && !read.zeros_less_one && !read.symmetric);
  // Releases around 0.5 also describe inputs.
  json gptq = Gptq();
  gptq.merge_patch({{"act_bits", 16},
                    {"act_data_type", "int"},
                    {"act_dynamic", true},
                    {"act_group_size", 128},
                    {"act_sym", true},
                    {"to_quant_block_names", "model.layers"}});
  EXPECT_TRUE(Good(gptq).symmetric);
}

TEST(ConfigIntegersTest, RefusesWhatIsNotServedByName) {
  const json compressed = CompressedTensors(), awq = Awq(), gptq = Gptq(), own = AutoRound();
  const std::string weights = "/config_groups/group_0/weights";
  const struct {
    const json& object;
    std::string pointer;
    json value;
    const char* message;
  } kCases[] = {
      {gptq, "/bits", 2, "\"bits\" is 2; supported: 4, 8"},
      {gptq, "/bits", 3, "\"bits\" is 3; supported: 4, 8"},
      {gptq, "/group_size", 48, "\"group_size\" is 48; supported: -1, 32, 64, 128"},
      {gptq, "/checkpoint_format", "marlin", "\"checkpoint_format\" is \"marlin\""},
      {gptq, "/is_marlin_format", true, "\"is_marlin_format\" is true"},
      {gptq, "/lm_head", true, "\"lm_head\" is true; supported: false"},
      {gptq, "/dynamic", {{"-:.*down.*", json::object()}}, "\"dynamic\" is an object"},
      {gptq, "/modules_in_block_to_quantize", {"mlp"}, "\"modules_in_block_to_quantize\""},
      {gptq, "/pack_dtype", "int8", "\"pack_dtype\" is \"int8\"; supported: \"int32\""},
      {gptq, "/rotation", "hadamard", "unknown key \"rotation\""},
      {awq, "/bits", 8, "\"bits\" is 8; supported: 4"},
      {awq, "/version", "gemv", "\"version\" is \"gemv\"; supported: \"gemm\""},
      {awq, "/version", "marlin", "\"version\" is \"marlin\""},
      {awq, "/version", "exllama", "\"version\" is \"exllama\""},
      {awq, "/zero_point", nullptr, "\"zero_point\" is null; supported: true, false"},
      {gptq, "/act_bits", 8, "\"act_bits\" is 8; supported: null, 16 or more"},
      {own, "/packing_format", "auto_round", "supported: \"auto_round:auto_gptq\""},
      {own, "/extra_config/lm_head/bits", 8, "\"bits\" is 8; supported: 16 or more"},
      {own, "/extra_config/.*down.*", {{"bits", 16}}, "\".*down.*\": supported: names of modules"},
      {own, "/bits", 2, "\"bits\" is 2; supported: 4, 8"},
      {awq, "/backend", "llm-awq", "\"backend\" is \"llm-awq\""},
      {awq, "/modules_to_not_convert", "lm_head", "\"modules_to_not_convert\" is \"lm_head\""},
      {awq, "/modules_to_not_convert", {"k_proj"}, "k_proj\" is not quantized"},
      {awq, "/group_size", 256, "\"group_size\" is 256; supported: -1, 32, 64, 128"},
      {compressed, weights + "/num_bits", 3, "\"num_bits\" is 3; supported: 4, 8"},
      {compressed, weights + "/group_size", 20, "\"group_size\" is 20"},
      {compressed, weights + "/strategy", "block", "\"strategy\" is \"block\""},
      {compressed, weights + "/strategy", "tensor", "supported: \"group\", \"channel\""},
      {compressed, weights + "/actorder", "odd", "\"actorder\" is \"odd\""},
      {compressed, weights + "/type", "float", "\"type\" is \"float\"; supported: \"int\""},
      {compressed, weights + "/dynamic", true, "\"dynamic\" is true"},
      {compressed, weights + "/rotation", 1, "unknown key \"rotation\""},
      {compressed, "/format", "marlin-24", "\"format\" is \"marlin-24\""},
      {compressed, "/format", "int-quantized", "\"num_bits\" is 4; supported: 8"},
      {compressed,
       "/config_groups/group_0/input_activations",
       {{"num_bits", 8}},
       "\"input_activations\" is an object"},
  };
  for (const auto& [object, pointer, value, message] : kCases) {
    EXPECT_THAT(Refusal(object, pointer.c_str(), value), HasSubstr(message)) << pointer;
  }
}

TEST(ConfigIntegersTest, TheSettingIsThatOfTheFiles) {
  const ModelConfig stored = *Load(Gptq());
  EXPECT_EQ(QuantizationName(stored), "int4");
  for (const char* setting : {"auto", "int4"}) {
    ModelConfig model = stored;
    EXPECT_TRUE(ChooseQuantization(setting, model).ok()) << setting;
    EXPECT_TRUE(model.quantization.integers.has_value());
  }
  for (const char* setting : {"none", "fp8"}) {
    ModelConfig model = stored;
    EXPECT_THAT(std::string(ChooseQuantization(setting, model).message()),
                AllOf(HasSubstr(std::string("--quantization ") + setting + ": "),
                      HasSubstr("stored as integers (int4)")));
  }
  ModelConfig model = stored;
  EXPECT_THAT(
      std::string(ChooseQuantization("int8", model).message()),
      HasSubstr("--quantization int8: the model's matrices are not stored so, but as int4"));
}

}  // namespace
}  // namespace quire::testing
