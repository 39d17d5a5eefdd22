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
#include "engine/model/capability_check.h"
#include "tests/engine/model/checkpoints.h"
#include "tests/engine/model/model_runner.h"

namespace quire::testing {
namespace {

// Those of which wider checkpoints, with heads of 64 or 128, were compared with transformers on a
// GPU (make_checkpoints.py).
const std::set<std::string> kProvedOnGpu = {"LlamaForCausalLM", "MistralForCausalLM",
                                            "Qwen2ForCausalLM", "Qwen3ForCausalLM"};

// Whether the CUDA kernels serve a model of these facts, in sizes that they take.
std::string OnCuda(ModelConfig model, int32_t head_dim) {
  model.hidden_size = 4096, model.intermediate_size = 14336, model.head_dim = head_dim;
  model.num_heads = 32, model.num_kv_heads = 8;
  const KernelDemand demand{.model = model,
                            .weight_dtype = DType::kBF16,
                            .kv_dtype = DType::kBF16,
                            .max_num_seqs = 256,
                            .max_num_batched_tokens = 2048};
  const absl::Status status = CheckDeviceCan(demand, kCudaLimits);
  if (status.ok()) {
    const bool proved =
        kProvedOnGpu.contains(model.architecture) && (head_dim == 64 || head_dim == 128);
    return proved ? "yes" : "not yet compared";
  }
  return "refused";
}

std::string Table() {
  std::string table =
      "| models | architecture | differs from llama by | ranks | CUDA |\n|---|---|---|---|---|\n";
  for (const TestCheckpoint& checkpoint : FamilyCheckpoints()) {
    const ModelConfig config = *ModelConfig::Load(ModelDir(checkpoint.name));
    const char* ranks = config.CheckTensorParallel(2).ok() ? "any" : "one";
    absl::StrAppend(&table, "| ", checkpoint.models, " | `", config.architecture, "` | ",
                    checkpoint.particular, " | ", ranks, " | ", OnCuda(config, checkpoint.head_dim),
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
