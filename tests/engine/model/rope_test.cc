// Rotary tables against those of transformers (tests/testdata/models/rope.json), and against the
// closed form in double.
#include "engine/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/json.h"
#include "engine/model/checkpoint/model_config.h"
#include "tests/engine/model/temp_dir.h"

namespace quire::testing {
namespace {

// The RopeConfig that ModelConfig reads from a config.json with these rope_parameters.
RopeConfig ReadConfig(const nlohmann::json& item) {
  const TempDir dir;
  const int head_dim = item.at("head_dim");
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", head_dim},
                                 {"head_dim", head_dim},
                                 {"intermediate_size", 8},
                                 {"num_hidden_layers", 1},
                                 {"num_attention_heads", 1},
                                 {"vocab_size", 8},
                                 {"max_position_embeddings", item.at("max_position")},
                                 {"rope_parameters", item.at("rope_parameters")}};
  dir.Write("config.json", config.dump());
  absl::StatusOr<ModelConfig> loaded = ModelConfig::Load(dir.path());
  CHECK(loaded.ok());
  return loaded->rope;
}

// The number of DeepSeek-R1-0528-Qwen3-8B is 1 / (0.1 ln 4 + 1): its scale is 1, as vLLM has it.
TEST(RopeTest, AttnFactorMultipliesTheDefaultScaleOfYarn) {
  const auto scale = [](nlohmann::json more) {
    nlohmann::json parameters = {{"rope_type", "yarn"},
                                 {"factor", 4.0},
                                 {"original_max_position_embeddings", 32768},
                                 {"attn_factor", 0.8782488562869419}};
    parameters.update(more);
    return RopeAttentionScale(
        ReadConfig({{"head_dim", 128}, {"max_position", 131072}, {"rope_parameters", parameters}}));
  };
  EXPECT_FLOAT_EQ(scale(nlohmann::json::object()), 1);
  EXPECT_FLOAT_EQ(scale({{"attn_factor", nullptr}}), 1.1386294f);
  EXPECT_FLOAT_EQ(scale({{"attn_factor", 0.5}}), 0.5693147f);
  EXPECT_FLOAT_EQ(scale({{"attention_factor", 1.25}}), 1.25);
  // (0.08 ln 4 + 1) / (0.05 ln 4 + 1) * 0.5
  EXPECT_FLOAT_EQ(scale({{"attn_factor", 0.5}, {"mscale", 0.8}, {"mscale_all_dim", 0.5}}),
                  0.51944649f);
}

TEST(RopeTest, FrequenciesAndTablesEqualTransformers) {
  absl::StatusOr<nlohmann::json> json =
      ReadJsonFile(std::string(QUIRE_SOURCE_DIR) + "/tests/testdata/models/rope.json");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->size(), 12u);
  for (const auto& [name, item] : json->items()) {
    SCOPED_TRACE(name);
    const RopeConfig rope = ReadConfig(item);
    const int32_t head_dim = item.at("head_dim"), half = head_dim / 2;
    // A power and a few operations in float32, of which the libraries' last bits may differ.
    constexpr double kRelative = 1e-6;
    const std::vector<float> inv_freq = RopeInverseFrequencies(rope, head_dim, 131072);
    const std::vector<double> expected = item.at("inv_freq");
    ASSERT_EQ(inv_freq.size(), expected.size());
    for (int32_t i = 0; i < half; ++i) {
      EXPECT_NEAR(inv_freq[i], expected[i], kRelative * expected[i]) << i;
    }
    const double scale = item.at("attention_scaling");
    EXPECT_NEAR(RopeAttentionScale(rope), scale, 1e-6 * scale);

    const std::vector<int32_t> positions = item.at("positions");
    std::vector<float> table(size_t{131072} * head_dim);
    FillRopeTable(rope, head_dim, 131072, table);
    for (size_t p = 0; p < positions.size(); ++p) {
      const float* row = table.data() + size_t{static_cast<uint32_t>(positions[p])} * head_dim;
      for (int32_t i = 0; i < half; ++i) {
        // The frequency's error, multiplied by the position, and the rounding of cos, sin and
        // scale.
        const double tolerance = scale * (kRelative * expected[i] * positions[p] + 5e-7);
        EXPECT_NEAR(row[i], item.at("cos")[p][i].get<double>(), tolerance) << p << " " << i;
        EXPECT_NEAR(row[half + i], item.at("sin")[p][i].get<double>(), tolerance) << p << " " << i;
      }
    }
  }
}

TEST(RopeTest, UnscaledTableIsTheClosedForm) {
  constexpr int32_t kHeadDim = 6, kPositions = 50;
  std::vector<float> table(kHeadDim * kPositions);
  FillRopeTable({.theta = 100.0}, kHeadDim, kPositions, table);
  for (int32_t p = 0; p < kPositions; ++p) {
    for (int32_t i = 0; i < kHeadDim / 2; ++i) {
      const double angle = p * std::pow(100.0, -2.0 * i / kHeadDim);
      EXPECT_NEAR(table[p * kHeadDim + i], std::cos(angle), 1e-5);
      EXPECT_NEAR(table[p * kHeadDim + kHeadDim / 2 + i], std::sin(angle), 1e-5);
    }
  }
}

}  // namespace
}  // namespace quire::testing
