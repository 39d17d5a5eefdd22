// Every family on ranks of GPUs, against transformers: logits and clear greedy tokens on each rank,
// by two ranks and by four, which hold each key/value head twice. Four ranks share two GPUs where
// there are no more. The checkpoints are those of model_gpu_test.
// Covers engine/model/decoder.cc
#include <algorithm>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/engine/model/model_runner.h"
#include "tests/gpu/forked_ranks.h"

namespace quire::testing {
namespace {

constexpr int32_t kWhole = 1000;
constexpr double kClearErrors = 7;  // as in model_gpu_test

std::unique_ptr<CudaBackend> JoinedBackend(const ModelConfig& config, const RankPlace& place) {
  const TpInfo tp{.rank = place.rank, .size = place.ranks};
  std::string why;
  std::unique_ptr<CudaBackend> backend = CudaBackend::Create(
      {.ordinal = place.rank % gpu::CountGpus(),
       .place = place,
       .max_tokens = 512,
       .max_rows = 64,
       .max_context = 512,
       .num_heads = static_cast<int32_t>(Shard(config.num_heads, tp).count),
       .num_kv_heads = static_cast<int32_t>(KvShard(config.num_kv_heads, tp).count),
       .head_dim = config.head_dim,
       .hidden = config.hidden_size},
      &why);
  if (backend == nullptr) std::fprintf(stderr, "rank %d: %s\n", place.rank, why.c_str());
  return backend;
}

std::vector<int32_t> Known(const Expected::Prompt& prompt) {
  std::vector<int32_t> ids = prompt.tokens;
  ids.insert(ids.end(), prompt.greedy.begin(), prompt.greedy.end() - 1);
  return ids;
}

bool ClearTokensMatch(ModelRunner& runner, const Expected& expected, const RankPlace& place) {
  for (const Expected::Prompt& prompt : expected.prompts) {
    const std::vector<int32_t> known = Known(prompt);
    const auto prompt_len = static_cast<int32_t>(prompt.tokens.size());
    runner.RunChunked(prompt.tokens, kWhole, {});
    for (size_t i = 0; i < prompt.greedy.size(); ++i) {
      const int32_t position = prompt_len - 1 + static_cast<int32_t>(i);
      const std::vector<float> logits =
          runner.Run({{.context = position,
                       .tokens = {known[static_cast<size_t>(position)]},
                       .logit_rows = {0}}});
      if (prompt.margins[i] < kClearErrors * expected.bf16_relative_error) continue;
      if (ArgMax(logits, expected.vocab_size) == prompt.greedy[i]) continue;
      std::fprintf(stderr, "rank %d: token %zu is another\n", place.rank, i);
      return false;
    }
  }
  return true;
}

bool MatchesTransformers(const std::string& name, const RankPlace& place) {
  const absl::StatusOr<ModelConfig> config = ModelConfig::Load(ModelDir(name));
  const Expected expected = ReadExpected(name);
  const DType dtype = name.ends_with("llama-f16") ? DType::kF16 : DType::kBF16;
  const std::unique_ptr<CudaBackend> backend = JoinedBackend(*config, place);
  if (backend == nullptr) return false;
  ModelRunner runner(
      name, {place.rank, place.ranks},
      RunnerOptions{.weight_dtype = dtype, .activation_dtype = dtype, .kv_dtype = dtype}, *backend);
  double worst = 0;
  for (const Expected::Prompt& prompt : expected.prompts) {
    const std::vector<float> logits = runner.RunChunked(Known(prompt), kWhole, prompt.positions);
    worst = std::max(worst, RelativeError(logits, prompt.logits));
  }
  if (place.rank == 0) {
    std::printf("%s: relative error %.4f, of transformers in bf16 %.4f\n", name.c_str(), worst,
                expected.bf16_relative_error);
  }
  return worst < 1.5 * expected.bf16_relative_error && ClearTokensMatch(runner, expected, place);
}

class GroupParity : public ::testing::TestWithParam<const char*> {};

TEST_P(GroupParity, LogitsAndClearTokensMatchTransformers) {
  const std::string name = std::string("build/gpu-models/") + GetParam();
  EXPECT_TRUE(gpu::OnForkedRanks(
      2, [&](const RankPlace& place) { return MatchesTransformers(name, place); }));
}

// One checkpoint: ranks that take turns on a GPU are slow.
TEST(GroupParityOfFour, LogitsAndClearTokensMatchTransformers) {
  EXPECT_TRUE(gpu::OnForkedRanks(4, [&](const RankPlace& place) {
    return MatchesTransformers("build/gpu-models/llama-8-heads", place);
  }));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GroupParity,
                         ::testing::Values("llama", "llama-8-heads", "llama-tied-bias",
                                           "llama-llama3", "llama-linear", "llama-yarn",
                                           "llama-bf16", "llama-f16", "llama-sharded", "mistral",
                                           "qwen2", "qwen2-sliding", "qwen3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quire::testing
