// docs/models.md: its table of families is the one that the tests' checkpoints and the limits of
// the devices give. Covers engine/model/checkpoint/families.cc
#include "engine/model/checkpoint/families.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/base/json.h"
#include "engine/model/capability_check.h"
#include "tests/engine/model/checkpoints.h"
#include "tests/engine/model/model_runner.h"

namespace quire::testing {
namespace {

// The checkpoints whose wide form a GPU has compared with transformers, from the report of
// model_gpu_test, in the form of its tests' names.
std::set<std::string> ProvedOnGpu() {
  const std::string before = "Checkpoints/GpuParity.LogitsMatchTransformers/";
  const nlohmann::json report =
      *ReadJsonFile(std::string(QUIRE_SOURCE_DIR) + "/bench/results/gpu.json");
  std::set<std::string> proved;
  for (const nlohmann::json& run : report.at("runs")) {
    const nlohmann::json entry = run.at("tests").value("model_gpu_test", nlohmann::json());
    if (entry.empty() || entry.at("failures") != 0) continue;
    for (const auto& [name, values] : entry.at("properties").items()) {
      const bool compared = name.starts_with(before) && values.contains("relative_error");
      if (compared) proved.insert(name.substr(before.size()));
    }
  }
  return proved;
}

// Whether the CUDA kernels serve a model of these facts, in sizes that they take.
std::string OnCuda(ModelConfig model, const TestCheckpoint& checkpoint, bool proved) {
  model.hidden_size = 4096, model.intermediate_size = 14336;
  model.head_dim = checkpoint.head_dim;
  model.num_heads = 32, model.num_kv_heads = 8;
  const KernelDemand demand{.model = model,
                            .weight_dtype = DType::kBF16,
                            .kv_dtype = DType::kBF16,
                            .max_num_seqs = 256,
                            .max_num_batched_tokens = 2048};
  const absl::Status status = CheckDeviceCan(demand, kCudaLimits);
  return !status.ok() ? "refused" : proved ? "yes" : "not yet compared";
}

std::string Table() {
  std::string table =
      "| models | architecture | differs from llama by | ranks | CUDA |\n|---|---|---|---|---|\n";
  const std::set<std::string> proved = ProvedOnGpu();
  for (const TestCheckpoint& checkpoint : FamilyCheckpoints()) {
    const ModelConfig config = *ModelConfig::Load(ModelDir(checkpoint.name));
    const bool on_gpu = proved.contains(TestNameOf(checkpoint));
    const char* ranks = config.CheckTensorParallel(2).ok() ? "any" : "one";
    absl::StrAppend(&table, "| ", checkpoint.models, " | `", config.architecture, "` | ",
                    checkpoint.particular, " | ", ranks, " | ", OnCuda(config, checkpoint, on_gpu),
                    " |\n");
  }
  return table;
}

TEST(ModelsPageTest, TheTableIsThatOfTheTests) {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/docs/models.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_NE(page.str().find(Table()), std::string::npos) << "docs/models.md should have\n"
                                                         << Table();
}

// Each row of the table of families has a checkpoint that proves it.
TEST(ModelsPageTest, EveryFamilyHasACheckpoint) {
  std::set<std::string> proved;
  for (const TestCheckpoint& checkpoint : FamilyCheckpoints()) {
    proved.insert(ModelConfig::Load(ModelDir(checkpoint.name))->architecture);
  }
  for (const Family& family : Families()) {
    EXPECT_TRUE(proved.contains(std::string(family.architecture))) << family.architecture;
  }
  EXPECT_EQ(proved.size(), Families().size());
}

}  // namespace
}  // namespace quire::testing
