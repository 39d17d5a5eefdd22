// Every family on the GPU against transformers: logits and greedy tokens, chunked prefill, batches.
// The checkpoints are made by tests/gpu/run (make_checkpoints.py --wide) in build/gpu-models, and
// the test runs from the repository's root.
#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/engine/model/model_runner.h"

namespace quire::testing {
namespace {

using ::testing::TestWithParam;
using ::testing::Values;

constexpr int32_t kWhole = 1000;  // a chunk longer than any prompt
// A token is clear if the reference's best logit leads by more than this many of its own errors in
// bf16. Below that another order of roundings may choose another token: the best and the second
// logit of a row are each wrong by the relative error times the row's RMS, and chance does not
// exceed five standard deviations of that.
constexpr double kClearErrors = 7;

std::unique_ptr<CudaBackend> MakeBackend(const std::string& name) {
  const absl::StatusOr<ModelConfig> config = ModelConfig::Load(ModelDir(name));
  EXPECT_TRUE(config.ok()) << config.status();
  const CudaOptions options{.max_tokens = 512,
                            .max_rows = 64,
                            .max_context = 512,
                            .num_heads = config->num_heads,
                            .num_kv_heads = config->num_kv_heads,
                            .head_dim = config->head_dim};
  std::string why;
  std::unique_ptr<CudaBackend> backend = CudaBackend::Create(options, &why);
  EXPECT_NE(backend, nullptr) << why;
  return backend;
}

// The prompt and its continuation without the last token.
std::vector<int32_t> Known(const Expected::Prompt& prompt) {
  std::vector<int32_t> ids = prompt.tokens;
  ids.insert(ids.end(), prompt.greedy.begin(), prompt.greedy.end() - 1);
  return ids;
}

class GpuParity : public TestWithParam<const char*> {
 protected:
  GpuParity() {
    const DType dtype = std::string(GetParam()) == "llama-f16" ? DType::kF16 : DType::kBF16;
    runner_ = std::make_unique<ModelRunner>(
        name_, TpInfo{},
        RunnerOptions{.weight_dtype = dtype, .activation_dtype = dtype, .kv_dtype = dtype},
        *backend_);
  }

  const std::string name_ = std::string("build/gpu-models/") + GetParam();
  const Expected expected_ = ReadExpected(name_);
  const std::unique_ptr<CudaBackend> backend_ = MakeBackend(name_);
  std::unique_ptr<ModelRunner> runner_;
};

// The bound is the distance of transformers in bf16 from transformers in float32, times 1.5: the
// backend rounds no more often, and half as much again covers another order of sums.
TEST_P(GpuParity, LogitsMatchTransformers) {
  double worst = 0;
  for (const Expected::Prompt& prompt : expected_.prompts) {
    const std::vector<float> logits = runner_->RunChunked(Known(prompt), kWhole, prompt.positions);
    worst = std::max(worst, RelativeError(logits, prompt.logits));
  }
  EXPECT_LT(worst, 1.5 * expected_.bf16_relative_error);
  RecordProperty("relative_error", std::to_string(worst));
  RecordProperty("relative_error_of_transformers", std::to_string(expected_.bf16_relative_error));
}

TEST_P(GpuParity, ClearGreedyTokensMatchTransformers) {
  int32_t clear = 0, total = 0;
  for (const Expected::Prompt& prompt : expected_.prompts) {
    ASSERT_EQ(prompt.margins.size(), prompt.greedy.size());
    const std::vector<int32_t> known = Known(prompt);
    const auto prompt_len = static_cast<int32_t>(prompt.tokens.size());
    runner_->RunChunked(prompt.tokens, kWhole, {});
    // Feeds the reference's own continuation, so that one unclear token does not hide the rest.
    for (size_t i = 0; i < prompt.greedy.size(); ++i) {
      const int32_t position = prompt_len - 1 + static_cast<int32_t>(i);
      const std::vector<float> logits =
          runner_->Run({{.context = position, .tokens = {known[position]}, .logit_rows = {0}}});
      ++total;
      if (prompt.margins[i] < kClearErrors * expected_.bf16_relative_error) continue;
      ++clear;
      EXPECT_EQ(ArgMax(logits, expected_.vocab_size), prompt.greedy[i]) << "token " << i;
    }
  }
  EXPECT_GT(clear, total / 3) << "too few clear tokens to prove anything";
  RecordProperty("clear_tokens", clear);
}

TEST_P(GpuParity, BitsDoNotDependOnTheBatch) {
  std::vector<float> alone;
  std::vector<Slice> batch;
  for (int32_t s = 0; s < 3; ++s) {
    const std::vector<int32_t>& tokens = expected_.prompts[s].tokens;
    const auto last = static_cast<int32_t>(tokens.size()) - 1;
    runner_->RunChunked(tokens, kWhole, {}, s);
    const Slice next{.sequence = s, .context = last, .tokens = {tokens[last]}, .logit_rows = {0}};
    const std::vector<float> logits = runner_->Run({next});
    alone.insert(alone.end(), logits.begin(), logits.end());
    batch.push_back(next);
  }
  EXPECT_EQ(runner_->Run(batch), alone);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GpuParity,
                         Values("llama", "llama-8-heads", "llama-tied-bias", "llama-llama3",
                                "llama-linear", "llama-yarn", "llama-bf16", "llama-f16",
                                "llama-sharded", "mistral", "qwen2", "qwen2-sliding", "qwen3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quire::testing
