// Mutated checkpoints of every family and of matrices of integers, by seed: tensors that are
// missing, renamed, extra, misshapen or of another type are refused by name; a config.json of any
// kind is refused by its key or served without a fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/model/checkpoint/families.h"
#include "tests/engine/model/checkpoint_mutator.h"
#include "tests/engine/model/checkpoints.h"
#include "tests/engine/model/edited_checkpoint.h"

namespace quire::testing {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kMutations = 100;  // of tensors, and as many of the config
constexpr ModelOptions kOptions{.max_tokens = 32, .max_logit_rows = 4, .max_model_len = 128};

// Loads the checkpoint, and runs a few tokens if that succeeds.
absl::Status LoadAndRun(const EditedCheckpoint& checkpoint) {
  const TempDir dir;
  checkpoint.WriteTo(dir);
  const absl::StatusOr<ModelConfig> config = ModelConfig::Load(dir.path());
  if (!config.ok()) return config.status();
  const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, 1)[0]);
  const absl::Status loaded = LoadModel(dir.path(), *config, {}, kOptions, *backend).status();
  if (!loaded.ok()) return loaded;
  ModelRunner runner(dir.path(), {}, {}, *backend);
  const std::vector<int32_t> tokens = {1, 0, config->vocab_size - 1};
  EXPECT_EQ(runner.RunChunked(tokens, 2, {2}).size(), static_cast<size_t>(config->vocab_size));
  return loaded;
}

class MutatedCheckpoint : public ::testing::TestWithParam<TestCheckpoint> {
 protected:
  CheckpointMutator mutator_{GetParam().name};
};

TEST_P(MutatedCheckpoint, TensorsAreRefusedByName) {
  const EditedCheckpoint good(GetParam().name);
  ASSERT_TRUE(LoadAndRun(good).ok());
  for (int i = 0; i < kMutations; ++i) {
    EditedCheckpoint checkpoint = good;
    const std::string named = mutator_.MutateTensor(checkpoint);
    const absl::Status status = LoadAndRun(checkpoint);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << named;
    EXPECT_THAT(std::string(status.message()), HasSubstr(named));
  }
}

TEST_P(MutatedCheckpoint, ConfigsAreRefusedByKeyOrServed) {
  const EditedCheckpoint good(GetParam().name);
  for (int i = 0; i < kMutations; ++i) {
    EditedCheckpoint checkpoint = good;
    const std::string key = mutator_.MutateConfig(checkpoint);
    const absl::Status status = LoadAndRun(checkpoint);
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    // A changed size shows in the shape of a tensor, everything else in the key.
    EXPECT_THAT(std::string(status.message()), AnyOf(HasSubstr("config.json"), HasSubstr("tensor")))
        << key;
  }
}

// A value of no sense under a key that changes results is never passed over.
TEST_P(MutatedCheckpoint, KeysThatChangeResultsAreNotPassedOver) {
  const EditedCheckpoint good(GetParam().name);
  const Family& family = *FindFamily(good.config["architectures"][0].get<std::string>());
  const bool nested = family.keys.text != nullptr;
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
        "head_dim", "vocab_size", "max_position_embeddings", "tie_word_embeddings", "rope_scaling",
        "rope_parameters", "rope_theta", family.keys.num_layers, family.keys.norm_eps,
        family.keys.activation, "quantization_config"}) {
    EditedCheckpoint checkpoint = good;
    json& object = nested ? checkpoint.config[family.keys.text] : checkpoint.config;
    if (nested && std::string(key) == "tie_word_embeddings") checkpoint.config.erase(key);
    object[key] = json::array({json::array()});
    if (std::string(key) == "rope_theta") object.erase("rope_parameters");
    const absl::Status status = LoadAndRun(checkpoint);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("\"") + key + "\"")) << key;
  }
}

TEST_P(MutatedCheckpoint, FilesCutShortAreRefused) {
  const EditedCheckpoint good(GetParam().name);
  for (int i = 0; i < 10; ++i) {
    EditedCheckpoint checkpoint = good;
    checkpoint.data.resize(static_cast<size_t>(mutator_.Pick(checkpoint.data.size())));
    EXPECT_EQ(LoadAndRun(checkpoint).code(), absl::StatusCode::kInvalidArgument);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, MutatedCheckpoint, ::testing::ValuesIn(FamilyCheckpoints()),
                         NameOfCheckpoint);
// Each of their tensors is required.
INSTANTIATE_TEST_SUITE_P(Integers, MutatedCheckpoint,
                         ::testing::Values(TestCheckpoint{"int4-gptq-order", "", ""},
                                           TestCheckpoint{"int4-ct-zeros", "", ""},
                                           TestCheckpoint{"int4-awq", "", ""}),
                         NameOfCheckpoint);
INSTANTIATE_TEST_SUITE_P(Quantized, MutatedCheckpoint,
                         ::testing::Values(TestCheckpoint{"fp8-block", "", ""}), NameOfCheckpoint);

}  // namespace
}  // namespace quire::testing
