// Quantization as published checkpoints describe it: the objects that the three writers of FP8 put
// into their files, and everything else refused by name.
// Covers engine/model/checkpoint/quantization.h
#include "engine/model/checkpoint/config_quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/json.h"
#include "engine/model/checkpoint/model_config.h"
#include "nlohmann/json.hpp"
#include "tests/engine/model/model_runner.h"
#include "tests/engine/model/temp_dir.h"

namespace quire::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

json Config() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"vocab_size", 256},
          {"torch_dtype", "bfloat16"}};
}

absl::StatusOr<ModelConfig> LoadJson(const json& config, const json& file = nullptr) {
  const TempDir dir;
  dir.Write("config.json", config.dump());
  if (!file.is_null()) dir.Write("hf_quant_config.json", file.dump());
  return ModelConfig::Load(dir.path());
}

absl::StatusOr<ModelConfig> Load(const json& quantization,
                                 const char* key = "quantization_config") {
  json config = Config();
  config[key] = quantization;
  return LoadJson(config);
}

Quantization Good(const json& quantization) {
  const absl::StatusOr<ModelConfig> model = Load(quantization);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  EXPECT_EQ(model->quantization.source, Quantization::Source::kStored);
  EXPECT_EQ(model->stored_dtype, DType::kBF16);
  return model->quantization;
}

// The message for an object changed by a JSON patch of one value.
std::string Refusal(json quantization, const char* pointer, const json& value) {
  quantization[json::json_pointer(pointer)] = value;
  const absl::Status status = Load(quantization).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pointer;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/config.json: \"quantization_config\""));
  return std::string(status.message());
}

// As llm-compressor 0.3 writes FP8_DYNAMIC.
json CompressedTensors() {
  return json::parse(R"({
    "config_groups": {"group_0": {
      "input_activations": {"actorder": null, "block_structure": null, "dynamic": true,
        "group_size": null, "num_bits": 8, "observer": null, "observer_kwargs": {},
        "strategy": "token", "symmetric": true, "type": "float"},
      "output_activations": null,
      "targets": ["Linear"],
      "weights": {"actorder": null, "block_structure": null, "dynamic": false,
        "group_size": null, "num_bits": 8, "observer": "minmax", "observer_kwargs": {},
        "strategy": "channel", "symmetric": true, "type": "float"}}},
    "format": "float-quantized", "global_compression_ratio": null, "ignore": ["lm_head"],
    "kv_cache_scheme": null, "quant_method": "compressed-tensors",
    "quantization_status": "compressed"})");
}

// As AutoFP8 writes it.
json AutoFp8() {
  return {
      {"quant_method", "fp8"}, {"activation_scheme", "static"}, {"ignored_layers", {"lm_head"}}};
}

// As ModelOpt 0.35 writes it into config.json.
json ModelOpt() {
  return json::parse(R"({
    "config_groups": {"group_0": {
      "input_activations": {"dynamic": false, "num_bits": 8, "type": "float"},
      "weights": {"dynamic": false, "num_bits": 8, "type": "float"}, "targets": ["Linear"]}},
    "ignore": ["lm_head"], "quant_algo": "FP8",
    "kv_cache_scheme": {"dynamic": false, "num_bits": 8, "type": "float"},
    "producer": {"name": "modelopt", "version": "0.35.0"}, "quant_method": "modelopt"})");
}

TEST(ConfigQuantizationTest, CompressedTensors) {
  const Quantization read = Good(CompressedTensors());
  EXPECT_THAT(read.wide, IsEmpty());
  EXPECT_EQ(read.scale_suffix, ".weight_scale");
  // FP8 with static scales, as neuralmagic's first releases; without activations; what a dense
  // model says of its sparsity.
  json other = CompressedTensors();
  json& group = other["config_groups"]["group_0"];
  group["weights"]["strategy"] = "tensor";
  group["input_activations"]["strategy"] = "tensor";
  group["input_activations"]["dynamic"] = false;
  group["format"] = "float-quantized";
  other["quantization_status"] = "frozen";
  other["sparsity_config"] = {{"format", "dense"}, {"global_sparsity", 0.1}};
  other["transform_config"] = json::object();
  other["version"] = "0.11.0";
  other["moe_sparsity_config"] = nullptr;  // a key that is not known, without a value
  Good(other);
  group["input_activations"] = nullptr;
  other["sparsity_config"] = json::object();
  Good(other);
  // Older releases use another key.
  EXPECT_TRUE(Load(other, "compression_config").ok());
}

// As DeepSeek-V3 and Qwen3-FP8 have it.
json QwenFp8() {
  return {{"quant_method", "fp8"},
          {"activation_scheme", "dynamic"},
          {"fmt", "e4m3"},
          {"weight_block_size", {128, 128}}};
}

// As llm-compressor writes FP8_BLOCK.
json CompressedBlocks() {
  json object = CompressedTensors();
  json& group = object["config_groups"]["group_0"];
  group["weights"]["strategy"] = "block";
  group["weights"]["block_structure"] = {128, 128};
  group["input_activations"]["strategy"] = "group";
  group["input_activations"]["group_size"] = 128;
  return object;
}

TEST(ConfigQuantizationTest, Blocks) {
  json qwen_again = QwenFp8();  // as transformers 5 saves it
  qwen_again.erase("fmt");
  qwen_again.merge_patch({{"dequantize", false}, {"expert_dtype", "fp8"}, {"scale_fmt", "float"}});
  qwen_again["modules_to_convert"] = nullptr;
  EXPECT_EQ(Good(qwen_again).encoding, Encoding::kFp8Blocks);
  const Quantization qwen = Good(QwenFp8());
  EXPECT_EQ(qwen.encoding, Encoding::kFp8Blocks);
  EXPECT_EQ(qwen.scale_suffix, ".weight_scale_inv");
  const Quantization compressed = Good(CompressedBlocks());
  EXPECT_EQ(compressed.encoding, Encoding::kFp8Blocks);
  EXPECT_EQ(compressed.scale_suffix, ".weight_scale");
  EXPECT_EQ(Good(CompressedTensors()).encoding, Encoding::kFp8Rows);
  EXPECT_EQ(Good(AutoFp8()).encoding, Encoding::kFp8Rows);
  json named = QwenFp8();
  named["modules_to_not_convert"] = {"lm_head", "model.layers.0.input_layernorm",
                                     "model.layers.1.mlp.down_proj"};
  named["ignored_layers"] = {"model.layers.0.self_attn.o_proj"};
  named["scale_fmt"] = "ue8m0";
  EXPECT_THAT(Good(named).wide,
              ElementsAre("model.layers.0.self_attn.o_proj", "model.layers.1.mlp.down_proj"));
  const struct {
    const char* pointer;
    json value;
    const char* message;
  } kCases[] = {
      {"/config_groups/group_0/weights/block_structure",
       {64, 64},
       "\"block_structure\" is [64,64]"},
      {"/config_groups/group_0/weights/group_size", 128, "\"group_size\" is 128"},
      {"/config_groups/group_0/input_activations/strategy", "token", "\"strategy\" is \"token\""},
      {"/config_groups/group_0/input_activations/group_size", 64, "\"group_size\" is 64"},
      {"/config_groups/group_0/input_activations/dynamic", false, "\"dynamic\" is false"},
  };
  for (const auto& [pointer, value, message] : kCases) {
    EXPECT_THAT(Refusal(CompressedBlocks(), pointer, value), HasSubstr(message)) << pointer;
  }
  EXPECT_THAT(Refusal(QwenFp8(), "/scale_fmt", "e8m0"), HasSubstr("\"scale_fmt\" is \"e8m0\""));
}

// As llm-compressor writes W8A8.
json Integers() {
  json object = CompressedTensors();
  object["format"] = "int-quantized";
  json& group = object["config_groups"]["group_0"];
  group["weights"]["type"] = group["input_activations"]["type"] = "int";
  return object;
}

TEST(ConfigQuantizationTest, Integers) {
  const Quantization read = Good(Integers());
  EXPECT_EQ(read.encoding, Encoding::kInt8Rows);
  EXPECT_EQ(read.dtype(), DType::kI8);
  EXPECT_EQ(EncodingText(read), "int8 with 8-bit inputs, a scale for each row");
  EXPECT_EQ(EncodingText(Good(QwenFp8())), "fp8, a scale for each 128 x 128 block");
  EXPECT_EQ(EncodingText(Good(AutoFp8())), "fp8, a scale for each row");
  EXPECT_EQ(EncodingText(Quantization()), "none");
  json fixed = Integers();
  json& group = fixed["config_groups"]["group_0"];
  group["weights"]["strategy"] = group["input_activations"]["strategy"] = "tensor";
  group["input_activations"]["dynamic"] = false;
  EXPECT_EQ(Good(fixed).encoding, Encoding::kInt8Rows);
  const struct {
    const char* pointer;
    json value;
    const char* message;
  } kCases[] = {
      {"/config_groups/group_0/weights/type", "float", "\"type\" is \"float\"; supported: \"int\""},
      {"/config_groups/group_0/weights/num_bits", 4, "\"num_bits\" is 4"},
      {"/config_groups/group_0/weights/strategy", "block", "\"strategy\" is \"block\""},
      {"/config_groups/group_0/weights/strategy", "group", "\"strategy\" is \"group\""},
      {"/config_groups/group_0/input_activations/symmetric", false, "\"symmetric\" is false"},
      {"/format", "float-quantized", "\"type\" is \"int\""},
  };
  // Without inputs of their own, integers are the factors of wide inputs.
  json alone = Integers();
  alone["config_groups"]["group_0"]["input_activations"] = nullptr;
  EXPECT_TRUE(Good(alone).integers.has_value());
  for (const auto& [pointer, value, message] : kCases) {
    EXPECT_THAT(Refusal(Integers(), pointer, value), HasSubstr(message)) << pointer;
  }
  ModelConfig model = *Load(Integers());
  EXPECT_EQ(QuantizationName(model), "int8");
  for (const char* setting : {"auto", "int8"}) {
    EXPECT_TRUE(ChooseQuantization(setting, model).ok()) << setting;
  }
  EXPECT_THAT(std::string(ChooseQuantization("fp8", model).message()),
              HasSubstr("--quantization fp8: the model's matrices are stored as integers (int8)"));
  json config = Config();
  config["quantization_config"] = Integers();
  config["intermediate_size"] = 131073;
  EXPECT_THAT(std::string(LoadJson(config).status().message()),
              HasSubstr("a matrix has 131073 columns; sums of 8-bit integers take 131072"));
}

// Columns that share a scale stay on one rank.
TEST(ConfigQuantizationTest, RanksCutBetweenBlocks) {
  json config = Config();
  config["quantization_config"] = QwenFp8();
  config["hidden_size"] = 256;
  config["intermediate_size"] = 512;
  absl::StatusOr<ModelConfig> model = LoadJson(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->TensorParallelSizes(), ElementsAre(1, 2));
  EXPECT_TRUE(model->CheckTensorParallel(2).ok());
  EXPECT_THAT(std::string(model->CheckTensorParallel(4).message()),
              AllOf(HasSubstr("--tensor-parallel-size 4: a rank's share"),
                    HasSubstr("head_dim 64 and of intermediate_size 512"),
                    HasSubstr("128 columns that share a scale; this model takes 1, 2")));
  config["intermediate_size"] = 384;
  EXPECT_THAT(LoadJson(config)->TensorParallelSizes(), ElementsAre(1));
  config.erase("quantization_config");
  EXPECT_THAT(LoadJson(config)->TensorParallelSizes(), ElementsAre(1, 2, 4));
}

TEST(ConfigQuantizationTest, AutoFp8AndModelOpt) {
  EXPECT_THAT(Good(AutoFp8()).wide, IsEmpty());
  json dynamic = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}};
  dynamic["weight_block_size"] = nullptr;
  dynamic["modules_to_not_convert"] = {"model.layers.1.mlp.down_proj", "lm_head"};
  EXPECT_THAT(Good(dynamic).wide, ElementsAre("model.layers.1.mlp.down_proj"));
  json values = AutoFp8();
  values["kv_cache_scheme"] = "static";
  Good(values);
  EXPECT_THAT(Good(ModelOpt()).wide, IsEmpty());
  json wild = ModelOpt();
  wild["ignore"] = {"lm_head", "model.layers.0.*"};
  EXPECT_EQ(Good(wild).wide.size(), 7);
}

// As older releases of it write their object.
TEST(ConfigQuantizationTest, ModelOptWithoutTargetsAndMethod) {
  json old = ModelOpt();
  old["config_groups"]["group_0"].erase("targets");
  old.erase("quant_method");
  old["quant_library"] = "modelopt";
  EXPECT_EQ(Good(old).encoding, Encoding::kFp8Rows);
  json odd = CompressedTensors();
  odd["config_groups"]["group_0"].erase("targets");
  EXPECT_THAT(std::string(Load(odd).status().message()), HasSubstr("\"targets\" is null"));
  EXPECT_THAT(Refusal(CompressedTensors(), "/quant_algo", "FP8"), HasSubstr("unknown key"));
}

TEST(ConfigQuantizationTest, AutoFp8TakesTheLastNamesOfAModule) {
  json fp8 = AutoFp8();
  fp8["modules_to_not_convert"] = {"o_proj", "proj"};
  EXPECT_THAT(Good(fp8).wide, UnorderedElementsAre("model.layers.0.self_attn.o_proj",
                                                   "model.layers.1.self_attn.o_proj"));
}

// The program that wrote the list has another root for the decoder than the file.
TEST(ConfigQuantizationTest, ExceptionsUnderTheFamilysOtherRoot) {
  json config = *ReadJsonFile(ModelDir("gemma3-vision") + "/config.json");
  config["quantization_config"] = CompressedTensors();
  for (const char* entry : {"model.language_model.layers.0.mlp.down_proj",
                            "re:model[.]language_model[.]layers[.]0[.]mlp[.]down",
                            "language_model.model.layers.0.mlp.down_proj"}) {
    config["quantization_config"]["ignore"] = {entry};
    const absl::StatusOr<ModelConfig> model = LoadJson(config);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_THAT(model->quantization.wide,
                ElementsAre("language_model.model.layers.0.mlp.down_proj"));
  }
  // One that says what is not wide stands for the names of the file alone.
  config["quantization_config"]["ignore"] = {"re:^(?!language_model[.]).*"};
  EXPECT_THAT(LoadJson(config)->quantization.wide, IsEmpty());
}

// Programs that wrote a file of their own said nothing in config.json.
TEST(ConfigQuantizationTest, AFileOfOlderProgramsIsRefusedByName) {
  const TempDir dir;
  dir.Write("config.json", Config().dump());
  for (const char* name : {"quantize_config.json", "quant_config.json"}) {
    dir.Write(name, R"({"bits": 4, "group_size": 128})");
    EXPECT_THAT(std::string(ModelConfig::Load(dir.path()).status().message()),
                AllOf(HasSubstr(std::string("/") + name), HasSubstr("\"quantization_config\"")));
    std::filesystem::remove(dir.path() + "/" + name);
  }
  EXPECT_TRUE(ModelConfig::Load(dir.path()).ok());
  dir.Write("quantize_config.json", R"({"bits": 16})");  // of a wide model
  EXPECT_TRUE(ModelConfig::Load(dir.path()).ok());
}

TEST(ConfigQuantizationTest, ModelOptInAFileOfItsOwn) {
  json file = json::parse(R"({"producer": {"name": "modelopt", "version": "0.23.0"},
    "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8",
                     "exclude_modules": ["lm_head", "*layers.1.mlp*"]}})");
  absl::StatusOr<ModelConfig> model = LoadJson(Config(), file);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->quantization.wide,
              UnorderedElementsAre("model.layers.1.mlp.gate_proj", "model.layers.1.mlp.up_proj",
                                   "model.layers.1.mlp.down_proj"));
  // config.json has the word.
  json config = Config();
  config["quantization_config"] = CompressedTensors();
  file["quantization"]["quant_algo"] = "NVFP4";
  model = LoadJson(config, file);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->quantization.wide, IsEmpty());
  EXPECT_THAT(std::string(LoadJson(Config(), file).status().message()),
              HasSubstr("/hf_quant_config.json: \"quantization\": \"quant_algo\" is \"NVFP4\"; "
                        "supported: \"FP8\""));
  EXPECT_FALSE(LoadJson(Config(), json::array()).ok());
  file["quantization"]["quant_algo"] = nullptr;
  model = LoadJson(Config(), file);
  EXPECT_TRUE(model.ok() && model->quantization.empty()) << model.status();
}

TEST(ConfigQuantizationTest, ExceptionsBecomeExactNames) {
  json object = CompressedTensors();
  object["ignore"] = {"re:.*lm_head", "re:vision_tower.*", "re:.*layers[.]0[.]self_attn.*",
                      "model.layers.1.mlp.down_proj", "multi_modal_projector.linear_1"};
  const Quantization read = Good(object);
  EXPECT_THAT(read.wide, UnorderedElementsAre(
                             "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj",
                             "model.layers.0.self_attn.v_proj", "model.layers.0.self_attn.o_proj",
                             "model.layers.1.mlp.down_proj"));
  EXPECT_FALSE(read.IsEightBit("model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(read.IsEightBit("model.layers.1.self_attn.q_proj"));
}

// In parallel blocks attention and the feed-forward have one input.
TEST(ConfigQuantizationTest, ParallelBlocksAreQuantizedTogether) {
  json config = Config();
  config["architectures"] = {"CohereForCausalLM"};
  config["quantization_config"] = CompressedTensors();
  config["quantization_config"]["ignore"] = {"lm_head", "re:.*self_attn.*"};
  EXPECT_THAT(std::string(LoadJson(config).status().message()),
              AllOf(HasSubstr("\"model.layers.0.self_attn.v_proj\" is not quantized"),
                    HasSubstr("model.layers.0.mlp.up_proj")));
  config["quantization_config"]["ignore"] = {"lm_head", "re:.*o_proj", "re:.*down_proj"};
  EXPECT_TRUE(LoadJson(config).ok());
}

TEST(ConfigQuantizationTest, FusedMatricesAreQuantizedTogether) {
  EXPECT_THAT(Refusal(CompressedTensors(), "/ignore", {"model.layers.1.self_attn.k_proj"}),
              AllOf(HasSubstr("\"model.layers.1.self_attn.k_proj\" is not quantized"),
                    HasSubstr("model.layers.1.self_attn.q_proj"), HasSubstr("or none")));
  EXPECT_THAT(Refusal(AutoFp8(), "/ignored_layers", {"model.layers.0.mlp.up_proj"}),
              HasSubstr("\"model.layers.0.mlp.up_proj\" is not quantized"));
}

TEST(ConfigQuantizationTest, RefusesOtherMethodsByName) {
  for (const char* method : {"aqlm", "bitsandbytes", "fbgemm_fp8", "mxfp4", "hqq", "quark"}) {
    const std::string message = Refusal(json::object(), "/quant_method", method);
    EXPECT_THAT(message, AllOf(HasSubstr(std::string("\"quant_method\" is \"") + method + "\""),
                               HasSubstr("supported: \"compressed-tensors\", \"fp8\"")));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
  }
  for (const char* format : {"marlin-24", "nvfp4-pack-quantized"}) {
    EXPECT_THAT(Refusal(CompressedTensors(), "/format", format),
                HasSubstr(std::string("\"format\" is \"") + format + "\"; supported: \"float-"));
  }
  EXPECT_THAT(Refusal(AutoFp8(), "/weight_block_size", {128, 128}),
              HasSubstr("\"activation_scheme\" is \"static\"; supported: \"dynamic\""));
  EXPECT_THAT(Refusal(QwenFp8(), "/weight_block_size", {64, 128}),
              HasSubstr("\"weight_block_size\" is [64,128]; supported: [128,128]"));
  EXPECT_THAT(Refusal(ModelOpt(), "/quant_algo", "NVFP4"),
              HasSubstr("\"quant_algo\" is \"NVFP4\""));
}

TEST(ConfigQuantizationTest, RefusesWhatChangesResults) {
  const struct {
    const char* pointer;
    json value;
    const char* message;
  } kCases[] = {
      {"/config_groups/group_0/weights/num_bits", 4, "\"num_bits\" is 4; supported: 8"},
      {"/config_groups/group_0/weights/type", "int", "\"type\" is \"int\"; supported: \"float\""},
      {"/config_groups/group_0/weights/strategy", "block", "\"block_structure\" is null"},
      {"/config_groups/group_0/weights/strategy", "group", "\"strategy\" is \"group\""},
      {"/config_groups/group_0/weights/group_size", 128, "\"group_size\" is 128"},
      {"/config_groups/group_0/weights/block_structure", {128, 128}, "\"block_structure\""},
      {"/config_groups/group_0/weights/symmetric", false, "\"symmetric\" is false"},
      {"/config_groups/group_0/weights/dynamic", true, "\"dynamic\" is true"},
      {"/config_groups/group_0/weights/actorder", "group", "\"actorder\" is \"group\""},
      {"/config_groups/group_0/weights/rotation", 1, "unknown key \"rotation\""},
      {"/config_groups/group_0/weights", nullptr, "not a JSON object"},
      {"/config_groups/group_0/input_activations/type", "int", "\"type\" is \"int\""},
      {"/config_groups/group_0/input_activations/strategy", "group", "\"strategy\" is \"group\""},
      {"/config_groups/group_0/output_activations", {{"num_bits", 8}}, "\"output_activations\""},
      {"/config_groups/group_0/targets", {"re:.*q_proj"}, "\"targets\" is [\"re:.*q_proj\"]"},
      {"/config_groups/group_0/format", "pack-quantized", "\"format\" is \"pack-quantized\""},
      {"/config_groups/group_1", json::object(), "\"config_groups\" is an object"},
      {"/config_groups", nullptr, "\"config_groups\" is null"},
      {"/sparsity_config", {{"format", "sparse-24-bitmask"}}, "\"format\" is \"sparse-24"},
      {"/transform_config", {{"r1", 1}}, "\"transform_config\" is an object; supported: null"},
      {"/kv_cache_scheme", {{"num_bits", 8}, {"type", "int"}}, "\"type\" is \"int\""},
      {"/kv_cache_scheme", "NVFP4", "\"kv_cache_scheme\" is \"NVFP4\""},
      {"/ignore", "lm_head", "\"ignore\" is \"lm_head\"; supported: a list"},
      {"/ignore", {1}, "\"ignore\" is [1]"},
      {"/ignore", {"re:(lm_head"}, "\"re:(lm_head\" is no expression"},
      {"/ignore", {"re:(([a-z0-9._])+)+[A-Z]$"}, "needs too many steps"},
      {"/new_key", 1, "unknown key \"new_key\""},
      {"", 8, "not a JSON object"},
  };
  for (const auto& [pointer, value, message] : kCases) {
    EXPECT_THAT(Refusal(CompressedTensors(), pointer, value), HasSubstr(message)) << pointer;
  }
  EXPECT_THAT(Refusal(AutoFp8(), "/activation_scheme", "none"), HasSubstr("\"activation_scheme\""));
  EXPECT_THAT(Refusal(AutoFp8(), "/fmt", "e5m2"), HasSubstr("\"fmt\" is \"e5m2\""));
}

TEST(ConfigQuantizationTest, ScalesOfActivationsAndKvStayUnread) {
  const Quantization read = Good(CompressedTensors());
  const std::string layer = "model.layers.0.self_attn.";
  for (const char* name : {"q_proj.input_scale", "k_scale", "v_scale", "k_proj.k_scale",
                           "k_proj.output_scale", "kv_scale", "q_scale"}) {
    EXPECT_TRUE(read.Unread(layer + name)) << name;
    // A wide checkpoint may have scales of keys and values, too.
    const bool of_products = std::string_view(name).starts_with("q_proj.") ||
                             std::string_view(name).starts_with("k_proj.output");
    EXPECT_EQ(Quantization().Unread(layer + name), !of_products) << name;
  }
  for (const char* name : {"q_proj.weight_scale", "q_proj.weight", "q_proj.weight_zero_point"}) {
    EXPECT_FALSE(read.Unread(layer + name)) << name;
  }
}

TEST(ConfigQuantizationTest, TheSettingChooses) {
  using Source = Quantization::Source;
  const ModelConfig wide = *LoadJson(Config()), stored = *Load(AutoFp8());
  const auto chosen = [](ModelConfig model, const char* setting) {
    EXPECT_TRUE(ChooseQuantization(setting, model).ok()) << setting;
    EXPECT_EQ(QuantizationName(model), model.quantization.empty() ? "none" : "fp8");
    return model.quantization.source;
  };
  EXPECT_EQ(chosen(wide, "auto"), Source::kNone);
  EXPECT_EQ(chosen(wide, "none"), Source::kNone);
  EXPECT_EQ(chosen(wide, "fp8"), Source::kWhileLoading);
  EXPECT_EQ(chosen(stored, "auto"), Source::kStored);
  EXPECT_EQ(chosen(stored, "fp8"), Source::kStored);
  ModelConfig refused = stored;
  EXPECT_THAT(std::string(ChooseQuantization("none", refused).message()),
              HasSubstr("--quantization none: "));
  EXPECT_THAT(std::string(ChooseQuantization("int4", refused).message()),
              HasSubstr("--quantization int4: the model's matrices are not stored so, but as fp8"));
  EXPECT_THAT(std::string(ChooseQuantization("fp4", refused).message()),
              HasSubstr("--quantization fp4 is unknown"));
}

}  // namespace
}  // namespace quire::testing
