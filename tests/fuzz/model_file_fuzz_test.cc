// Mutated files of checkpoints: of every family's config.json, of generation_config.json, and of
// safetensors files and their index.
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "gtest/gtest.h"
#include "tests/engine/model/temp_dir.h"
#include "tests/fuzz/json_mutator.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/targets/model_file_targets.h"

namespace quire {
namespace {

using Json = nlohmann::json;

// That file of all the checkpoints that have it.
std::vector<Json> SeedsOf(const std::string& file) {
  std::vector<Json> seeds;
  for (const auto& folder :
       std::filesystem::directory_iterator(QUIRE_SOURCE_DIR "/tests/testdata/models")) {
    const std::string path = folder.path().string() + "/" + file;
    if (std::filesystem::exists(path)) seeds.push_back(ReadJsonFile(path).value());
  }
  return seeds;
}

std::vector<std::string> Texts(const std::vector<Json>& values) {
  std::vector<std::string> texts;
  for (const Json& value : values) texts.push_back(value.dump());
  return texts;
}

const std::vector<Json> kConfigValues = {2,
                                         3,
                                         64,
                                         4096,
                                         0.5,
                                         1e-6,
                                         "silu",
                                         "gelu",
                                         "LlamaForCausalLM",
                                         "Gemma2ForCausalLM",
                                         "yarn",
                                         "longrope",
                                         "full_attention",
                                         "sliding_attention",
                                         "float8_e4m3fn",
                                         "fp8",
                                         "gptq",
                                         "awq",
                                         {{"rope_type", "llama3"}, {"factor", 8.0}},
                                         {{"type", "linear"}, {"factor", 0}},
                                         {1, 2, 3}};

TEST(ModelFileFuzzTest, Config) {
  const std::vector<Json> seeds = SeedsOf("config.json");
  ASSERT_GT(seeds.size(), 10u);
  JsonMutator values(seeds, kConfigValues, 11);
  for (int i = 0; i < 6000; ++i) FuzzConfigFile(values.Next().dump());
  Mutator text(Texts(seeds), {"{", "}", "null", "-1", "1e999", "\"\"", ":", ",", "[[[["}, 12);
  for (int i = 0; i < 2000; ++i) FuzzConfigFile(text.Next());
}

TEST(ModelFileFuzzTest, GenerationConfig) {
  std::vector<Json> seeds = SeedsOf("generation_config.json");
  seeds.push_back({{"temperature", 0.6},
                   {"top_k", 20},
                   {"top_p", 0.95},
                   {"min_p", 0.0},
                   {"repetition_penalty", 1.05},
                   {"max_new_tokens", 100},
                   {"do_sample", true},
                   {"eos_token_id", {2, 3}},
                   {"bos_token_id", 1}});
  JsonMutator values(seeds, {511, 512, 0.5, 1e-9, 1e39, {1, 2, 3}}, 13);
  for (int i = 0; i < 5000; ++i) FuzzGenerationConfig(values.Next().dump());
}

Json Header() {
  const auto tensor = [](const char* dtype, Json shape, int begin, int end) {
    return Json{{"dtype", dtype}, {"shape", std::move(shape)}, {"data_offsets", {begin, end}}};
  };
  return {{"__metadata__", {{"format", "pt"}}},
          {"a", tensor("F32", {2, 4}, 0, 32)},
          {"b", tensor("BF16", {8}, 32, 48)},
          {"c", tensor("I8", Json::array({16, 1}), 48, 64)},
          {"none", tensor("F16", {0, 3}, 64, 64)}};
}

TEST(ModelFileFuzzTest, SafetensorsHeader) {
  JsonMutator values({Header()},
                     {"F32",
                      "F8_E4M3",
                      "U64",
                      "BOOL",
                      16,
                      32,
                      48,
                      64,
                      65,
                      {0, 64},
                      {64, 0},
                      {4, 4},
                      {1, 1, 1, 1, 1, 1, 1, 1, 1},
                      {4294967296, 4294967296}},
                     14);
  for (int i = 0; i < 8000; ++i) FuzzSafetensorsHeader(values.Next().dump());
}

TEST(ModelFileFuzzTest, SafetensorsBytes) {
  const std::string file = testing::SafetensorsBytes(Header().dump(), std::string(64, 'x'));
  Mutator bytes({file, "", std::string(8, '\xFF'), std::string("\2\0\0\0\0\0\0\0{}", 10)},
                {std::string(1, '\0'), "\xFF", "\"a\":", "{", "}", "[0,64]", "  "}, 15);
  for (int i = 0; i < 8000; ++i) FuzzSafetensors(bytes.Next());
}

TEST(ModelFileFuzzTest, SafetensorsIndex) {
  const Json index = {{"metadata", {{"total_size", 128}}},
                      {"weight_map", {{"a", "a.safetensors"}, {"b", "b.safetensors"}}}};
  JsonMutator values({index},
                     {"a.safetensors", "b.safetensors", "../a.safetensors", "/etc/passwd",
                      "a.safetensors/../b.safetensors", "model.safetensors.index.json", "."},
                     16);
  for (int i = 0; i < 4000; ++i) FuzzSafetensorsIndex(values.Next().dump());
}

}  // namespace
}  // namespace quire
