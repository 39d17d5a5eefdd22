// config.json and generation_config.json: both forms transformers writes, the defaults of each
// family, and everything that has to be refused.
// Covers engine/model/config/config_reader.cc, engine/model/checkpoint/config_layers.cc,
// engine/model/checkpoint/config_rope.cc
#include "engine/model/checkpoint/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/values/sampling_params.h"
#include "nlohmann/json.hpp"
#include "tests/engine/model/temp_dir.h"

namespace quire::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json Config(const std::string& architecture = "LlamaForCausalLM") {
  return {{"architectures", {architecture}},
          {"hidden_size", 64},
          {"intermediate_size", 112},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 256},
          {"max_position_embeddings", 512},
          {"eos_token_id", 2}};
}

absl::StatusOr<ModelConfig> LoadJson(const json& config, const std::string& generation = "") {
  const TempDir dir;
  dir.Write("config.json", config.dump());
  if (!generation.empty()) dir.Write("generation_config.json", generation);
  return ModelConfig::Load(dir.path());
}

ModelConfig Good(const json& config, const std::string& generation = "") {
  absl::StatusOr<ModelConfig> loaded = LoadJson(config, generation);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? *loaded : ModelConfig();
}

// The message for `config` changed by a merge patch.
std::string Refusal(const char* patch, const std::string& architecture = "LlamaForCausalLM") {
  json config = Config(architecture);
  // Not merge_patch: null has to arrive as null.
  const json changes = json::parse(patch);
  for (const auto& [key, value] : changes.items()) config[key] = value;
  absl::StatusOr<ModelConfig> loaded = LoadJson(config);
  EXPECT_FALSE(loaded.ok()) << patch;
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("config.json: ")) << patch;
  return std::string(loaded.status().message());
}

ModelConfig With(const char* patch, const std::string& architecture = "LlamaForCausalLM") {
  json config = Config(architecture);
  const json changes = json::parse(patch);
  for (const auto& [key, value] : changes.items()) config[key] = value;
  return Good(config);
}

TEST(ModelConfigTest, ReadsTheLlamaShape) {
  const ModelConfig c = Good(Config());
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_EQ(c.model_type, "llama");
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.intermediate_size, 112);
  EXPECT_EQ(c.num_layers, 3);
  EXPECT_EQ(c.num_heads, 4);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.vocab_size, 256);
  EXPECT_EQ(c.max_position, 512);
  EXPECT_EQ(c.sliding_window, 0);
  EXPECT_THAT(c.layer_is_sliding, ElementsAre(0, 0, 0));
  EXPECT_FLOAT_EQ(c.norm_eps, 1e-6f);
  EXPECT_FALSE(c.tie_embeddings || c.qkv_bias || c.o_bias || c.mlp_bias);
  EXPECT_EQ(c.facts.qk_norm, QkNorm::kNone);
  EXPECT_EQ(c.stored_dtype, DType::kF32);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(2));
  EXPECT_FALSE(c.bos_token_id.has_value());
  // q and o 64 x 64, k and v 32 x 64, three of 112 x 64, two norms; embedding and head; last norm.
  EXPECT_EQ(c.NumParameters(), 3 * (2 * 4096 + 2 * 2048 + 3 * 7168 + 128) + 2 * 16384 + 64);
}

// Configurations of published models, against the parameter counts on their model cards.
TEST(ModelConfigTest, CountsTheParametersOfPublishedModels) {
  const auto count = [](const char* patch, const char* architecture) {
    return With(patch, architecture).NumParameters();
  };
  EXPECT_EQ(count(R"({"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
                "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256})",
                  "LlamaForCausalLM"),
            8'030'261'248);
  EXPECT_EQ(count(R"({"hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,
                "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,
                "tie_word_embeddings":true})",
                  "LlamaForCausalLM"),
            1'235'814'400);
  EXPECT_EQ(count(R"({"hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
                "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000})",
                  "MistralForCausalLM"),
            7'241'732'096);
  EXPECT_EQ(count(R"({"hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,
                "num_attention_heads":14,"num_key_value_heads":2,"vocab_size":151936,
                "tie_word_embeddings":true})",
                  "Qwen2ForCausalLM"),
            494'032'768);
  EXPECT_EQ(count(R"({"hidden_size":1024,"intermediate_size":3072,"num_hidden_layers":28,
                "num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,
                "vocab_size":151936,"tie_word_embeddings":true})",
                  "Qwen3ForCausalLM"),
            596'049'920);
}

TEST(ModelConfigTest, FamiliesDifferByFlags) {
  const ModelConfig llama = With(R"({"attention_bias":true,"mlp_bias":true})");
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && llama.mlp_bias);
  const ModelConfig mistral = Good(Config("MistralForCausalLM"));
  EXPECT_EQ(mistral.sliding_window, 4096) << "the default of its configuration class";
  EXPECT_THAT(mistral.layer_is_sliding, ElementsAre(1, 1, 1));
  EXPECT_EQ(With(R"({"sliding_window":null})", "MistralForCausalLM").sliding_window, 0);
  EXPECT_EQ(With(R"({"sliding_window":32})", "MistralForCausalLM").sliding_window, 32);
  const ModelConfig qwen2 = Good(Config("Qwen2ForCausalLM"));
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias);
  EXPECT_EQ(qwen2.facts.qk_norm, QkNorm::kNone);
  const ModelConfig qwen3 = Good(Config("Qwen3ForCausalLM"));
  EXPECT_EQ(qwen3.facts.qk_norm, QkNorm::kHead);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim, 128) << "the default of its configuration class";
}

TEST(ModelConfigTest, DefaultsOfAbsentAndNullFieldsAreThoseOfTheFamily) {
  json config = Config();
  config.erase("num_key_value_heads");
  config.erase("max_position_embeddings");
  EXPECT_EQ(Good(config).num_kv_heads, 4);
  EXPECT_EQ(Good(config).max_position, 2048);
  config["num_key_value_heads"] = nullptr;
  config["architectures"] = {"MistralForCausalLM"};
  EXPECT_EQ(Good(config).num_kv_heads, 4);
  EXPECT_EQ(Good(config).max_position, 131072);
  config.erase("num_key_value_heads");
  config["num_attention_heads"] = 16;
  EXPECT_EQ(Good(config).num_kv_heads, 8);
  config["architectures"] = {"Qwen2ForCausalLM"};
  EXPECT_FALSE(LoadJson(config).ok()) << "32 key/value heads by default";
}

TEST(ModelConfigTest, QwenWindowsAreByLayer) {
  const std::string qwen = "Qwen2ForCausalLM";
  EXPECT_THAT(With(R"({"sliding_window":32,"max_window_layers":1})", qwen).layer_is_sliding,
              ElementsAre(0, 0, 0));
  const ModelConfig by_count =
      With(R"({"use_sliding_window":true,"sliding_window":32,"max_window_layers":1})", qwen);
  EXPECT_THAT(by_count.layer_is_sliding, ElementsAre(0, 1, 1));
  EXPECT_EQ(by_count.sliding_window, 32);
  const ModelConfig by_type = With(
      R"({"use_sliding_window":true,"sliding_window":32,"layer_types":
         ["sliding_attention","full_attention","full_attention"]})",
      qwen);
  EXPECT_THAT(by_type.layer_is_sliding, ElementsAre(1, 0, 0));
  // 28 full layers come first by default, more than there are.
  EXPECT_EQ(With(R"({"use_sliding_window":true})", qwen).sliding_window, 0);
}

// transformers gives each layer of these families the window, vLLM follows the types.
TEST(ModelConfigTest, RefusesFullLayersWhereEveryLayerHasTheWindow) {
  for (const char* family : {"MistralForCausalLM", "Phi3ForCausalLM", "Starcoder2ForCausalLM"}) {
    for (const char* types : {R"(["sliding_attention","full_attention","sliding_attention"])",
                              R"(["full_attention","full_attention","full_attention"])"}) {
      const std::string patch = std::string(R"({"sliding_window":32,"layer_types":)") + types + "}";
      EXPECT_THAT(
          Refusal(patch.c_str(), family),
          AllOf(HasSubstr("\"layer_types\" is "),
                HasSubstr("\"sliding_attention\" for every layer of this family, or null")));
    }
    EXPECT_THAT(With(R"({"sliding_window":32,"layer_types":
        ["sliding_attention","sliding_attention","sliding_attention"]})",
                     family)
                    .layer_is_sliding,
                ElementsAre(1, 1, 1));
    EXPECT_THAT(With(R"({"sliding_window":null,"layer_types":
        ["full_attention","full_attention","full_attention"]})",
                     family)
                    .layer_is_sliding,
                ElementsAre(0, 0, 0));
  }
}

TEST(ModelConfigTest, RopeIsTheSameInBothForms) {
  const ModelConfig old_form = With(R"({"rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3",
      "factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
      "original_max_position_embeddings":128}})");
  const ModelConfig new_form = With(R"({"rope_parameters":{"rope_theta":500000.0,
      "rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
      "original_max_position_embeddings":128}})");
  for (const ModelConfig& c : {old_form, new_form}) {
    EXPECT_EQ(c.rope.scaling, RopeScaling::kLlama3);
    EXPECT_EQ(c.rope.theta, 500000.0);
    EXPECT_EQ(c.rope.factor, 8.0);
    EXPECT_EQ(c.rope.low_freq_factor, 1.0);
    EXPECT_EQ(c.rope.high_freq_factor, 4.0);
    EXPECT_EQ(c.rope.original_max_position, 128);
    EXPECT_EQ(c.max_position, 512);
  }
  EXPECT_EQ(With(R"({"rope_scaling":null})").rope.theta, 10000.0);
  EXPECT_EQ(With(R"({"rope_scaling":{"type":"linear","factor":2}})").rope.scaling,
            RopeScaling::kLinear);
  EXPECT_EQ(With(R"({"rope_scaling":{"rope_type":"default"}})").rope.scaling, RopeScaling::kNone);
}

TEST(ModelConfigTest, YarnExtendsTheContextAndReadsItsOptions) {
  const ModelConfig c = With(R"({"rope_scaling":{"rope_type":"yarn","factor":4.0,
      "original_max_position_embeddings":512,"beta_fast":16,"attention_factor":1.5,
      "mscale":0.8,"mscale_all_dim":0,"truncate":false}})");
  EXPECT_EQ(c.max_position, 2048);
  EXPECT_EQ(c.rope.beta_fast, 16.0);
  EXPECT_EQ(c.rope.beta_slow, 1.0);
  EXPECT_EQ(c.rope.attention_factor, 1.5);
  EXPECT_EQ(c.rope.mscale, 0.8);
  EXPECT_FALSE(c.rope.mscale_all_dim.has_value());
  EXPECT_FALSE(c.rope.truncate);
  EXPECT_EQ(With(R"({"rope_scaling":{"type":"yarn","factor":2.0}})").rope.original_max_position,
            512);
  EXPECT_THAT(Refusal(R"({"rope_scaling":{"type":"linear","factor":2.0,"attn_factor":0.9}})"),
              HasSubstr("\"attn_factor\" is 0.9; supported: this key for \"yarn\" only"));
}

TEST(ModelConfigTest, ReadsTheStoredType) {
  EXPECT_EQ(With(R"({"torch_dtype":"bfloat16"})").stored_dtype, DType::kBF16);
  EXPECT_EQ(With(R"({"dtype":"float16"})").stored_dtype, DType::kF16);
  EXPECT_EQ(With(R"({"torch_dtype":"torch.float32"})").stored_dtype, DType::kF32);
  EXPECT_THAT(Refusal(R"({"torch_dtype":"float64"})"),
              AllOf(HasSubstr("\"torch_dtype\" is \"float64\""), HasSubstr("bfloat16")));
}

TEST(ModelConfigTest, GenerationConfigComesFirst) {
  const ModelConfig c = Good(Config(), R"({"eos_token_id":[7,9],"bos_token_id":5,"do_sample":false,
      "temperature":0.6,"top_k":-1,"top_p":0.9,"min_p":0.05,"repetition_penalty":1.1,
      "max_new_tokens":99,"transformers_version":"5.0"})");
  EXPECT_THAT(c.eos_token_ids, ElementsAre(7, 9));
  EXPECT_EQ(c.bos_token_id, 5);
  EXPECT_FALSE(c.generation.do_sample);
  EXPECT_FLOAT_EQ(c.generation.temperature.value(), 0.6f);
  EXPECT_EQ(c.generation.top_k, 0);
  EXPECT_FLOAT_EQ(c.generation.top_p.value(), 0.9f);
  EXPECT_FLOAT_EQ(c.generation.min_p.value(), 0.05f);
  EXPECT_FLOAT_EQ(c.generation.repetition_penalty.value(), 1.1f);
  EXPECT_EQ(c.generation.max_new_tokens, 99);
  const ModelConfig none = Good(Config(), R"({"eos_token_id":null})");
  EXPECT_THAT(none.eos_token_ids, ElementsAre(2));
  EXPECT_FALSE(none.generation.temperature.has_value());
  EXPECT_TRUE(none.generation.do_sample);
  EXPECT_THAT(With(R"({"eos_token_id":null})").eos_token_ids, IsEmpty());
}

TEST(ModelConfigTest, RefusesBadGenerationConfigsByFileAndKey) {
  for (const auto& [text, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"eos_token_id":256})", "\"eos_token_id\" is 256"},
           {R"({"eos_token_id":[1,-1]})", "\"eos_token_id\" is [1,-1]"},
           {R"({"temperature":"hot"})", "\"temperature\" is \"hot\""},
           {R"({"temperature":-1})", ": temperature must be between 0 and 100, not -1"},
           {R"({"temperature":101})", ": temperature must be between 0 and 100, not 101"},
           {R"({"temperature":1e99})", "\"temperature\" is 1e+99"},
           {R"({"top_p":0})", ": top_p must be above 0 and at most 1, not 0"},
           {R"({"top_p":1.5})", ": top_p must be above 0 and at most 1, not 1.5"},
           {R"({"min_p":-0.1})", ": min_p must be between 0 and 1, not -0.1"},
           {R"({"min_p":1.1})", ": min_p must be between 0 and 1, not 1.1"},
           {R"({"repetition_penalty":0})", ": repetition_penalty must be between 0.01 and 10"},
           {R"({"repetition_penalty":11})", ": repetition_penalty must be between 0.01 and 10"},
           {R"({"top_k":"many"})", "\"top_k\" is \"many\""},
           {R"({"top_k":257})",
            ": top_k must be between 0 (off) and the vocabulary's 256, not 257"},
           {R"({"max_new_tokens":0})", "\"max_new_tokens\" is 0"},
           {R"({"do_sample":1})", "\"do_sample\" is 1"},
           {R"([])", "not a JSON object"},
           {R"({)", "byte"}}) {
    absl::StatusOr<ModelConfig> loaded = LoadJson(Config(), text);
    EXPECT_FALSE(loaded.ok()) << text;
    EXPECT_THAT(std::string(loaded.status().message()),
                AllOf(HasSubstr("/generation_config.json: "), HasSubstr(message)));
  }
}

TEST(ModelConfigTest, RefusesSizesBeforeAnythingIsAllocated) {
  for (const auto& [patch, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"num_attention_heads":0})", "\"num_attention_heads\" is 0; supported: an integer"},
           {R"({"num_key_value_heads":0})", "\"num_key_value_heads\" is 0"},
           {R"({"num_key_value_heads":3})", "a divisor of num_attention_heads, 4"},
           {R"({"head_dim":2147483648})", "\"head_dim\" is 2147483648"},
           {R"({"head_dim":0})", "\"head_dim\" is 0"},
           {R"({"head_dim":15})", "head dimension 15"},
           {R"({"hidden_size":60})", "head dimension 15"},
           {R"({"hidden_size":66})", "a multiple of num_attention_heads, 4"},
           {R"({"hidden_size":-64})", "\"hidden_size\" is -64"},
           {R"({"hidden_size":64.0})", "\"hidden_size\" is 64.0"},
           {R"({"hidden_size":"64"})", "\"hidden_size\" is \"64\""},
           {R"({"hidden_size":null})", "\"hidden_size\" is missing"},
           {R"({"hidden_size":18446744073709551615})", "\"hidden_size\" is 18446744073709551615"},
           {R"({"hidden_size":4294967360})", "\"hidden_size\" is 4294967360"},
           {R"({"num_hidden_layers":1000000000})", "\"num_hidden_layers\" is 1000000000"},
           {R"({"intermediate_size":0})", "\"intermediate_size\" is 0"},
           {R"({"vocab_size":2147483647})", "\"vocab_size\" is 2147483647"},
           {R"({"max_position_embeddings":0})", "\"max_position_embeddings\" is 0"},
           {R"({"max_position_embeddings":1})", "is 1; supported: an integer from 2"},
           {R"({"rms_norm_eps":-1e-5})", "\"rms_norm_eps\" is -"},
           {R"({"eos_token_id":256})", "\"eos_token_id\" is 256"},
           {R"({"tie_word_embeddings":"yes"})", "\"tie_word_embeddings\" is \"yes\""}}) {
    EXPECT_THAT(Refusal(patch), HasSubstr(message));
  }
}

TEST(ModelConfigTest, RefusesMoreEosIdsThanARowCanBan) {
  std::vector<int32_t> ids(SamplingParams::kMaxEosTokenIds);
  std::iota(ids.begin(), ids.end(), 0);
  json config = Config();
  config["eos_token_id"] = ids;
  EXPECT_EQ(Good(config).eos_token_ids, ids);
  ids.push_back(200);
  config["eos_token_id"] = ids;
  EXPECT_THAT(std::string(LoadJson(config).status().message()),
              HasSubstr("config.json: \"eos_token_id\" is a list of 193; supported: at most 192"));
  EXPECT_THAT(
      std::string(LoadJson(Config(), json{{"eos_token_id", ids}}.dump()).status().message()),
      HasSubstr("/generation_config.json: \"eos_token_id\" is a list of 193"));
}

TEST(ModelConfigTest, TheLargestSizesStillFitInt64) {
  const ModelConfig c = With(R"({"hidden_size":1048576,"intermediate_size":4194304,
      "num_hidden_layers":4096,"num_attention_heads":16384,"num_key_value_heads":16384,
      "head_dim":1024,"vocab_size":16777216})");
  EXPECT_GT(c.NumParameters(), int64_t{1} << 57);
  EXPECT_LT(c.NumParameters(), int64_t{1} << 60);
}

TEST(ModelConfigTest, RefusesWhatWouldChangeResults) {
  for (const auto& [patch, message] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"architectures":["MixtralForCausalLM"]})", "LlamaForCausalLM, MistralForCausalLM"},
           {R"({"architectures":["LlamaForCausalLM","MistralForCausalLM"]})", "a list of one of"},
           {R"({"architectures":null})", "a list of one of"},
           {R"({"architectures":"LlamaForCausalLM"})", "a list of one of"},
           {R"({"model_type":"mistral"})", "\"model_type\" is \"mistral\""},
           {R"({"hidden_act":"gelu"})", "\"hidden_act\" is \"gelu\"; supported: \"silu\""},
           {R"({"quantization_config":{"bits":4}})", "\"quantization_config\": \"quant_method\""},
           {R"({"compression_config":{}})", "\"compression_config\""},
           {R"({"is_causal":false})", "\"is_causal\" is false"},
           {R"({"partial_rotary_factor":0.5})", "\"partial_rotary_factor\" is 0.5"},
           {R"({"layer_types":["sliding_attention"]})", "\"layer_types\""},
           {R"({"rope_scaling":{"rope_type":"proportional","factor":2.0}})",
            "\"rope_type\" is \"proportional\"; supported: \"default\", \"linear\""},
           {R"({"rope_scaling":{"type":"dynamic"}})", "\"factor\" is missing"},
           {R"({"head_dim":2,"rope_scaling":{"type":"dynamic","factor":2}})",
            "more than 2 rotated dimensions"},
           {R"({"rope_scaling":{"type":"longrope"}})",
            "\"original_max_position_embeddings\" is missing"},
           {R"({"original_max_position_embeddings":64,"rope_scaling":{"type":"longrope",
               "short_factor":[1,1,1,1,1,1,1],"long_factor":[1,1,1,1,1,1,1,1]}})",
            "\"short_factor\" is [1,1,1,1,1,1,1]; supported: a list of 8 numbers"},
           {R"({"original_max_position_embeddings":64,"rope_scaling":{"type":"longrope",
               "short_factor":[1,1,1,1,1,1,1,"1"],"long_factor":[1,1,1,1,1,1,1,1]}})",
            "a list of numbers from"},
           {R"({"original_max_position_embeddings":64,"rope_scaling":{"type":"longrope",
               "short_factor":{"a":1},"long_factor":[1,1,1,1,1,1,1,1]}})",
            "a list of numbers from"},
           {R"({"rope_scaling":{"type":"yarn","factor":2.0,"short_factor":[1]}})",
            "\"type\" is \"yarn\"; supported: \"longrope\""},
           {R"({"rope_scaling":{"type":"linear"}})", "\"rope_scaling\": \"factor\" is missing"},
           {R"({"rope_scaling":{"type":"linear","factor":0.5}})", "\"factor\" is 0.5"},
           {R"({"rope_scaling":{"type":"linear","factor":1e999}})", "byte"},
           {R"({"rope_scaling":{"type":"llama3","factor":8,"low_freq_factor":4,
               "high_freq_factor":1}})",
            "\"high_freq_factor\" is 1"},
           {R"({"rope_scaling":{"mrope_section":[16,24,24]}})", "unknown key \"mrope_section\""},
           {R"({"rope_parameters":{"full_attention":{"rope_theta":1e4}}})",
            "unknown key \"full_attention\""},
           {R"({"rope_parameters":{"partial_rotary_factor":0.5}})", "\"partial_rotary_factor\""},
           {R"({"rope_scaling":[]})", "\"rope_scaling\": not a JSON object"},
           {R"({"rope_theta":0})", "\"rope_theta\" is 0"},
           {R"({"rope_theta":1.0,"rope_scaling":{"type":"yarn","factor":2.0}})", "above 1"},
           {R"({"rope_scaling":{"factor":2.0},"rope_parameters":{"rope_theta":1e4}})",
            "one of \"rope_scaling\" and \"rope_parameters\""}}) {
    // JSON cannot say infinity: 1e999 has to be text.
    if (std::string(patch).find("1e999") != std::string::npos) {
      const TempDir dir;
      std::string text = Config().dump();
      text.insert(text.size() - 1, ",\"rope_theta\":1e999");
      dir.Write("config.json", text);
      EXPECT_THAT(std::string(ModelConfig::Load(dir.path()).status().message()),
                  HasSubstr("number out of range"));
      continue;
    }
    EXPECT_THAT(Refusal(patch), HasSubstr(message)) << patch;
  }
  const std::string qwen = "Qwen3ForCausalLM";
  EXPECT_THAT(Refusal(R"({"layer_types":["full_attention"]})", qwen), HasSubstr("layer_types"));
  EXPECT_THAT(Refusal(R"({"layer_types":["full_attention","full_attention","chunked"]})", qwen),
              HasSubstr("\"full_attention\" and \"sliding_attention\""));
  EXPECT_THAT(
      Refusal(R"({"layer_types":["full_attention","full_attention","sliding_attention"]})", qwen),
      HasSubstr("use_sliding_window"));
}

TEST(ModelConfigTest, DynamicScalingRaisesTheContextOnlyForThoseWhoAsk) {
  const ModelConfig c = With(R"({"rope_scaling":{"type":"dynamic","factor":6.0}})");
  EXPECT_EQ(c.max_position, 512);
  EXPECT_EQ(c.longest_position, 6 * 512);
  EXPECT_EQ(c.rope.original_max_position, 512);
}

// As c4ai-command-r-v01 has it; vLLM takes --max-model-len up to the same number.
TEST(ModelConfigTest, CohereIsLongerForThoseWhoAsk) {
  for (const char* family : {"CohereForCausalLM", "Cohere2ForCausalLM"}) {
    const ModelConfig c =
        With(R"({"max_position_embeddings":8192,"model_max_length":131072})", family);
    EXPECT_EQ(c.max_position, 8192);
    EXPECT_EQ(c.longest_position, 131072);
    EXPECT_EQ(With(R"({"model_max_length":2})", family).longest_position, 512);
    EXPECT_EQ(With(R"({"model_max_length":null})", family).longest_position, 512);
    EXPECT_THAT(Refusal(R"({"model_max_length":"long"})", family),
                HasSubstr("\"model_max_length\" is \"long\""));
  }
  EXPECT_EQ(With(R"({"model_max_length":131072})").longest_position, 512);
}

TEST(ModelConfigTest, GemmaHasTwoBasesInBothForms) {
  const ModelConfig old_form = With(R"({"hidden_size":64,"rope_theta":1e6,
      "rope_local_base_freq":5000,"sliding_window":32,"sliding_window_pattern":2,
      "rope_scaling":{"rope_type":"linear","factor":8.0}})",
                                    "Gemma3ForCausalLM");
  const ModelConfig new_form = With(R"({"hidden_size":64,"sliding_window":32,
      "layer_types":["sliding_attention","full_attention","sliding_attention"],
      "rope_parameters":{"full_attention":{"rope_type":"linear","factor":8.0,"rope_theta":1e6},
      "sliding_attention":{"rope_type":"default","rope_theta":5000}}})",
                                    "Gemma3ForCausalLM");
  for (const ModelConfig& c : {old_form, new_form}) {
    EXPECT_EQ(c.rope.theta, 1e6);
    EXPECT_EQ(c.rope.scaling, RopeScaling::kLinear);
    EXPECT_EQ(c.local_rope.theta, 5000);
    EXPECT_EQ(c.local_rope.scaling, RopeScaling::kNone);
    EXPECT_THAT(c.layer_rotation,
                ElementsAre(Rotation::kLocal, Rotation::kGlobal, Rotation::kLocal));
    EXPECT_TRUE(c.tie_embeddings);
    EXPECT_EQ(c.facts.embedding_scale, 8.0f);
    EXPECT_EQ(c.facts.attention_scale, 0.0625f) << "query_pre_attn_scalar is 256 by default";
    EXPECT_EQ(c.facts.activation, Activation::kGelu);
  }
}

TEST(ModelConfigTest, LayersWithoutRotationAreThoseOfTheFamily) {
  constexpr auto kNone = Rotation::kNone, kGlobal = Rotation::kGlobal;
  EXPECT_THAT(With(R"({"no_rope_layers":[1,0,1]})", "SmolLM3ForCausalLM").layer_rotation,
              ElementsAre(kGlobal, kNone, kGlobal));
  EXPECT_THAT(With(R"({"no_rope_layer_interval":3})", "SmolLM3ForCausalLM").layer_rotation,
              ElementsAre(kGlobal, kGlobal, kNone));
  EXPECT_THAT(Refusal(R"({"no_rope_layers":[1,0]})", "SmolLM3ForCausalLM"),
              HasSubstr("\"no_rope_layers\" is [1,0]; supported: a list of num_hidden_layers, 3"));
  EXPECT_THAT(Refusal(R"({"use_sliding_window":true,"sliding_window":8})", "SmolLM3ForCausalLM"),
              HasSubstr("\"use_sliding_window\" is true"));
  const ModelConfig windows =
      With(R"({"sliding_window":8,"sliding_window_pattern":3})", "Exaone4ForCausalLM");
  EXPECT_THAT(windows.layer_rotation, ElementsAre(kGlobal, kGlobal, kNone));
  EXPECT_THAT(windows.layer_is_sliding, ElementsAre(1, 1, 0));
  EXPECT_THAT(With(R"({"sliding_window":null})", "Exaone4ForCausalLM").layer_rotation,
              ElementsAre(kGlobal, kGlobal, kGlobal));
}

TEST(ModelConfigTest, TheTextPartOfALargerModelIsRead) {
  json config = {{"architectures", {"Mistral3ForConditionalGeneration"}},
                 {"model_type", "mistral3"},
                 {"torch_dtype", "bfloat16"},
                 {"text_config", Config("unused")}};
  config["text_config"].erase("architectures");
  config["text_config"]["head_dim"] = 32;
  const ModelConfig c = Good(config);
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_EQ(c.stored_dtype, DType::kBF16);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(2));
  config["text_config"]["model_type"] = "llama";
  EXPECT_THAT(std::string(LoadJson(config).status().message()),
              HasSubstr("\"text_config\": \"model_type\" is \"llama\"; supported: \"mistral\""));
  config.erase("text_config");
  EXPECT_THAT(std::string(LoadJson(config).status().message()),
              HasSubstr("\"text_config\": not a JSON object"));
}

TEST(ModelConfigTest, NormsOverTheWholeWidthNeedOneRank) {
  const ModelConfig c = Good(Config("Olmo2ForCausalLM"));
  EXPECT_TRUE(c.CheckTensorParallel(1).ok());
  EXPECT_THAT(std::string(c.CheckTensorParallel(2).message()),
              AllOf(HasSubstr("--tensor-parallel-size 2"), HasSubstr("Olmo2ForCausalLM")));
}

// Adds up to what the families' own code counts for the published sizes.
TEST(ModelConfigTest, CountsTheParametersOfOtherFamilies) {
  const auto count = [](const char* patch, const char* architecture) {
    return With(patch, architecture).NumParameters();
  };
  EXPECT_EQ(count(R"({"hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,
                "num_attention_heads":8,"num_key_value_heads":4,"vocab_size":256000})",
                  "Gemma2ForCausalLM"),
            2'614'341'888);
  EXPECT_EQ(count(R"({"hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":32,
                "num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32064})",
                  "Phi3ForCausalLM"),
            3'821'079'552);
  EXPECT_EQ(count(R"({"hidden_size":3072,"intermediate_size":12288,"num_hidden_layers":30,
                "num_attention_heads":24,"num_key_value_heads":2,"vocab_size":49152})",
                  "Starcoder2ForCausalLM"),
            3'030'371'328);
}

TEST(ModelConfigTest, NamesTheMissingFile) {
  const TempDir dir;
  const absl::Status status = ModelConfig::Load(dir.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir.path() + "/config.json"));
}

TEST(ModelConfigTest, TensorParallelSizeMustDivideHeadsAndMlp) {
  const ModelConfig c = Good(Config());
  EXPECT_TRUE(c.CheckTensorParallel(1).ok());
  EXPECT_TRUE(c.CheckTensorParallel(2).ok());
  EXPECT_FALSE(c.CheckTensorParallel(0).ok());
  EXPECT_TRUE(c.CheckTensorParallel(4).ok());  // two ranks hold each key/value head
  EXPECT_THAT(std::string(c.CheckTensorParallel(3).message()),
              AllOf(HasSubstr("num_attention_heads 4"), HasSubstr("num_key_value_heads 2"),
                    HasSubstr("takes 1, 2, 4")));
  EXPECT_FALSE(c.CheckTensorParallel(8).ok());
}

TEST(ModelConfigTest, NamesAllFaultsOfOneReading) {
  json config = Config("MistralForCausalLM");
  config["hidden_act"] = "tanh";
  config["sliding_window"] = -1;
  config["rope_scaling"] = {{"type", "yarn"}, {"speed", 1}, {"noise", 2}};
  config["attention_bias"] = "no";
  config["torch_dtype"] = "int8";
  config["quantization_config"] = {{"quant_method", "aqlm"}};
  config["eos_token_id"] = 4096;
  const absl::StatusOr<ModelConfig> loaded = LoadJson(config, R"({"top_p": 3})");
  EXPECT_THAT(std::string(loaded.status().message()),
              AllOf(HasSubstr("\"hidden_act\" is \"tanh\""), HasSubstr("\"sliding_window\" is -1"),
                    HasSubstr("unknown key \"noise\""), HasSubstr("unknown key \"speed\""),
                    HasSubstr("\"torch_dtype\" is \"int8\""),
                    HasSubstr("\"quantization_config\": \"quant_method\" is \"aqlm\""),
                    HasSubstr("\"eos_token_id\" is 4096"), HasSubstr("top_p")));
  // One line for each, and none twice, although two readers share the object.
  EXPECT_EQ(std::ranges::count(std::string(loaded.status().message()), '\n'), 7);
}

TEST(ModelConfigTest, AQuantizedModelOfAnUnknownArchitectureIsNamedAsBoth) {
  json config = Config("DeepseekV3ForCausalLM");
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {64, 64}}};
  EXPECT_THAT(std::string(LoadJson(config).status().message()),
              AllOf(HasSubstr("\"architectures\" is [\"DeepseekV3ForCausalLM\"]"),
                    HasSubstr("\"weight_block_size\" is [64,64]")));
}

TEST(ModelConfigTest, NamesTheKeysThatItPassesOver) {
  json config = Config();
  config["use_cache"] = true;
  const TempDir dir;
  dir.Write("config.json", config.dump());
  dir.Write("generation_config.json", R"({"top_k": 5, "num_beams": 4, "pad_token_id": 1})");
  UnreadKeys unread;
  ASSERT_TRUE(ModelConfig::Load(dir.path(), &unread).ok());
  EXPECT_THAT(unread.config, ElementsAre("use_cache"));
  EXPECT_THAT(unread.generation, ElementsAre("num_beams", "pad_token_id"));
  config["text_config"] = Config();
  config["text_config"].update(json{{"model_type", "mistral"}, {"speed", 1}});
  config["architectures"] = {"Mistral3ForConditionalGeneration"};
  dir.Write("config.json", config.dump());
  ASSERT_TRUE(ModelConfig::Load(dir.path(), &unread).ok());
  EXPECT_THAT(unread.config, ::testing::IsSupersetOf({"use_cache", "text_config.speed"}));
}

TEST(ModelConfigTest, ListsTheNumbersOfRanks) {
  EXPECT_THAT(Good(Config()).TensorParallelSizes(), ElementsAre(1, 2, 4));
  EXPECT_THAT(Good(Config("Olmo2ForCausalLM")).TensorParallelSizes(), ElementsAre(1));
}

}  // namespace
}  // namespace quire::testing
