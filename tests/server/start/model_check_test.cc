// CheckModel against the start itself: over every checkpoint of the tests, over broken directories
// and over mutated checkpoints the verdict, the code and the reasons are those of a start.
// Covers server/start/chat_section.cc, server/start/device_sections.cc,
// server/start/file_section.cc, server/start/model_sections.cc, server/start/tokenizer_section.cc
#include "server/start/model_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_split.h"
#include "engine/base/clock.h"
#include "server/server.h"
#include "tests/engine/model/checkpoint_mutator.h"
#include "tests/engine/model/checkpoints.h"

namespace quire::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kMutations = 20;  // of tensors, and as many of the config, a family

Settings SettingsOf(const std::string& directory) {
  Settings settings;
  settings.engine.model = directory;
  settings.engine.device = "cpu";
  settings.engine.cpu_threads = 1;
  settings.engine.kv_cache_memory_bytes = 1 << 20;
  settings.engine.kv_offloading_size = 0;
  settings.server.skip_tokenizer_init = true;
  settings.server.front.port = 0;
  settings.server.metrics_port = 0;
  return settings;
}

std::vector<std::string> TextsOf(const CheckReport& report) {
  std::vector<std::string> texts;
  for (const CheckProblem& problem : report.problems) texts.push_back(problem.text);
  return texts;
}

// The value of a fact, or "" without it.
std::string FactOf(const CheckReport& report, const std::string& title, const std::string& name) {
  for (const CheckSection& section : report.sections) {
    const auto fact = std::ranges::find(section.facts, name, &CheckFact::name);
    if (section.title == title && fact != section.facts.end()) return fact->value;
  }
  return "";
}

// Checks and starts with the same settings; both come to the same end for the same reasons.
CheckReport CheckBesideStart(const Settings& settings) {
  const CheckReport report = CheckModel(settings);
  Server server(settings, SteadyNowNs());
  const std::optional<StartError> error = server.Start();
  EXPECT_EQ(error ? error->code : ExitCode::kOk, report.code())
      << (error ? error->status.ToString() : "started") << "\n"
      << CheckPage(report);
  if (!error) return report;
  for (const auto& line : absl::StrSplit(std::string(error->status.message()), '\n')) {
    EXPECT_THAT(TextsOf(report), Contains(std::string(line)));
  }
  return report;
}

class CheckedCheckpoint : public ::testing::TestWithParam<TestCheckpoint> {};

TEST_P(CheckedCheckpoint, WouldStartAndDoes) {
  const CheckReport report = CheckBesideStart(SettingsOf(ModelDir(GetParam().name)));
  EXPECT_THAT(TextsOf(report), IsEmpty());
  EXPECT_EQ(FactOf(report, "Weights", "names and shapes"), "as config.json makes them");
  EXPECT_THAT(CheckPage(report), ::testing::EndsWith("\nwould start\n"));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, CheckedCheckpoint, ::testing::ValuesIn(kCheckpoints),
                         NameOfCheckpoint);

class CheckedMutation : public ::testing::TestWithParam<TestCheckpoint> {
 protected:
  CheckReport Check(const EditedCheckpoint& checkpoint) {
    const TempDir dir;
    checkpoint.WriteTo(dir);
    return CheckBesideStart(SettingsOf(dir.path()));
  }

  const EditedCheckpoint good_{GetParam().name};
  CheckpointMutator mutator_{std::string("check ") + GetParam().name};
};

TEST_P(CheckedMutation, OfTensorsEndsAsTheStart) {
  for (int i = 0; i < kMutations; ++i) {
    EditedCheckpoint checkpoint = good_;
    const std::string named = mutator_.MutateTensor(checkpoint);
    EXPECT_THAT(TextsOf(Check(checkpoint)), Contains(HasSubstr(named)));
  }
}

TEST_P(CheckedMutation, OfTheConfigEndsAsTheStart) {
  for (int i = 0; i < kMutations; ++i) {
    EditedCheckpoint checkpoint = good_;
    mutator_.MutateConfig(checkpoint);
    Check(checkpoint);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, CheckedMutation, ::testing::ValuesIn(FamilyCheckpoints()),
                         NameOfCheckpoint);

// The parts of a directory are read whatever is wrong with the others.
TEST(ModelCheckTest, NamesTheFaultsOfEveryPart) {
  EditedCheckpoint checkpoint("llama");
  checkpoint.header["model.norm.weight_"] = checkpoint.header["model.norm.weight"];
  checkpoint.header.erase("model.norm.weight");
  checkpoint.header["model.layers.2.mlp.down_proj.weight"]["shape"] = {112, 64};
  const TempDir dir;
  checkpoint.WriteTo(dir);
  dir.Write("tokenizer.json", "{}");
  Settings settings = SettingsOf(dir.path());
  settings.server.skip_tokenizer_init = false;
  settings.server.api_keys = dir.path() + "/keys.json";
  settings.engine.tensor_parallel_size = 3;
  const CheckReport report = CheckBesideStart(settings);
  EXPECT_EQ(report.code(), ExitCode::kBadConfig) << "the plan comes first";
  EXPECT_THAT(TextsOf(report),
              AllOf(Contains(HasSubstr("--tensor-parallel-size 3")),
                    Contains(HasSubstr("tokenizer.json: ")), Contains(HasSubstr("keys.json")),
                    Contains(HasSubstr("model.norm.weight\": is missing")),
                    Contains(HasSubstr("down_proj.weight\": has shape [112, 64]")),
                    Contains(HasSubstr("model.norm.weight_\": is not part"))));
}

TEST(ModelCheckTest, APlanIsMadeOfWeightsThatAreToBeConverted) {
  EditedCheckpoint checkpoint("llama");
  const TempDir dir;
  dir.Write("config.json", checkpoint.config.dump());
  dir.Write("pytorch_model.bin", "x");
  const CheckReport report = CheckBesideStart(SettingsOf(dir.path()));
  EXPECT_EQ(report.code(), ExitCode::kModel);
  EXPECT_THAT(TextsOf(report), ElementsAre(HasSubstr("save_pretrained")));
  EXPECT_EQ(FactOf(report, "Device", "device"), "cpu");
}

// A start goes on without these, and requests find out.
TEST(ModelCheckTest, WarnsOfWhatRequestsWillLack) {
  EditedCheckpoint checkpoint("llama");
  checkpoint.config.erase("eos_token_id");
  const TempDir dir;
  checkpoint.WriteTo(dir);
  Settings settings = SettingsOf(dir.path());
  settings.server.skip_tokenizer_init = false;
  settings.server.tokenizer = QUIRE_SOURCE_DIR "/models/demo";
  const CheckReport report = CheckBesideStart(settings);
  EXPECT_EQ(report.code(), ExitCode::kOk);
  EXPECT_THAT(report.warnings,
              ElementsAre(HasSubstr("the tokenizer has ids up to 2047, the model up to 258"),
                          HasSubstr("\"eos_token_id\"")));
  EXPECT_EQ(FactOf(report, "Chat template", "template"), "parsed");
}

TEST(ModelCheckTest, RandomWeightsNeedNoFiles) {
  EditedCheckpoint checkpoint("llama");
  const TempDir dir;
  dir.Write("config.json", checkpoint.config.dump());
  Settings settings = SettingsOf(dir.path());
  EXPECT_EQ(CheckBesideStart(settings).code(), ExitCode::kModel);
  settings.engine.load_format = "dummy";
  EXPECT_EQ(CheckBesideStart(settings).code(), ExitCode::kOk);
}

TEST(ModelCheckTest, SaysWhatTheKernelsOfAGpuLack) {
  Settings settings = SettingsOf(ModelDir("llama"));
  settings.engine.dtype = "float32";
  EXPECT_THAT(FactOf(CheckModel(settings), "On GPUs", "CUDA kernels"),
              HasSubstr("--dtype float32 runs on the cpu only"));
  // Where a GPU is asked for, it is a reason.
  settings.engine.device = "cuda";
  const CheckReport report = CheckBesideStart(settings);
  EXPECT_EQ(report.code(), ExitCode::kBadConfig);
  EXPECT_THAT(TextsOf(report), ElementsAre(HasSubstr("--dtype float32 runs on the cpu only")));
  settings.engine.dtype = "auto";
  CheckBesideStart(settings);
}

// The first number of a text.
int64_t NumberIn(std::string text) {
  std::erase(text, ',');
  const size_t begin = text.find_first_of("0123456789");
  return begin == std::string::npos ? -1 : std::stoll(text.substr(begin));
}

// The sizes of Llama 3.1 70B, which has 70,553,706,496 parameters.
TEST(ModelCheckTest, PlansForGpusThatAreNotHere) {
  EditedCheckpoint checkpoint("llama");
  checkpoint.config.update({{"hidden_size", 8192},
                            {"intermediate_size", 28672},
                            {"num_hidden_layers", 80},
                            {"num_attention_heads", 64},
                            {"num_key_value_heads", 8},
                            {"head_dim", 128},
                            {"vocab_size", 128256},
                            {"torch_dtype", "bfloat16"},
                            {"dtype", "bfloat16"},
                            {"max_position_embeddings", 131072}});
  const TempDir dir;
  dir.Write("config.json", checkpoint.config.dump());
  Settings settings = SettingsOf(dir.path());
  settings.engine.kv_cache_memory_bytes = 0;
  settings.engine.load_format = "dummy";
  const CheckReport report = CheckModel(settings);
  EXPECT_EQ(FactOf(report, "Model", "parameters"), "70,553,706,496");
  EXPECT_EQ(FactOf(report, "On GPUs", "CUDA kernels"), "can compute this");
  // 141 GB of weights are more than one GPU of either size holds.
  EXPECT_EQ(FactOf(report, "On GPUs", "1 of 80 GB"), "too small");
  EXPECT_EQ(FactOf(report, "On GPUs", "1 of 141 GB"), "too small");
  // A token has 2 * 80 layers * 8 heads * 128 * 2 bytes = 327,680 of KV. Of 4 * 79 GiB 90% may be
  // used, which leaves 164.3e9 bytes beside the weights: 501,000 tokens, less up to 3 GiB a GPU for
  // everything else.
  const int64_t tokens = NumberIn(FactOf(report, "On GPUs", "4 of 80 GB"));
  EXPECT_LT(tokens, 501'400);
  EXPECT_GT(tokens, 461'000);
}

}  // namespace
}  // namespace quire::testing
