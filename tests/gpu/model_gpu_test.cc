// Every family and shape on the GPU against transformers: logits and greedy tokens, chunked
// prefill, batches; and every form of stored matrices of 4 and 8 bits against float64. A checkpoint
// that the kernels do not take is skipped, and the report says why.
#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/wide_checkpoints.h"

namespace quire::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::TestWithParam;
using ::testing::ValuesIn;

std::unique_ptr<CudaBackend> MakeBackend(const ModelConfig& config) {
  const CudaOptions options{.max_tokens = kMaxTokens,
                            .max_rows = kMaxRows,
                            .max_context = kMaxTokens,
                            .num_heads = config.num_heads,
                            .num_kv_heads = config.num_kv_heads,
                            .head_dim = config.head_dim,
                            .capped = config.facts.attention_soft_cap > 0,
                            .hidden = config.hidden_size};
  std::string why;
  std::unique_ptr<CudaBackend> backend = CudaBackend::Create(options, &why);
  EXPECT_NE(backend, nullptr) << why;
  return backend;
}

class GpuParity : public TestWithParam<TestCheckpoint> {
 protected:
  void SetUp() override {
    const std::string dir = WideDir(GetParam());
    const absl::StatusOr<ModelConfig> config = ModelConfig::Load(dir);
    ASSERT_TRUE(config.ok()) << config.status();
    const RunnerOptions options = WideOptions(GetParam());
    if (const absl::Status can = CheckWide(*config, 1, options); !can.ok()) {
      RecordProperty("refused", std::string(can.message()));
      GTEST_SKIP() << can;
    }
    expected_ = ReadExpected(dir);
    backend_ = MakeBackend(*config);
    ASSERT_NE(backend_, nullptr);
    runner_ = std::make_unique<ModelRunner>(dir, TpInfo{}, options, *backend_);
  }

  Expected expected_;
  std::unique_ptr<CudaBackend> backend_;
  std::unique_ptr<ModelRunner> runner_;
};

TEST_P(GpuParity, LogitsMatchTransformers) {
  const double worst = WorstError(expected_, *runner_);
  EXPECT_LT(worst, kErrorsAllowed * expected_.bf16_relative_error);
  RecordProperty("relative_error", std::to_string(worst));
  RecordProperty("relative_error_of_transformers", std::to_string(expected_.bf16_relative_error));
}

TEST_P(GpuParity, ClearGreedyTokensMatchTransformers) {
  const ClearTokens tokens = CompareClearTokens(expected_, *runner_);
  EXPECT_THAT(tokens.wrong, IsEmpty());
  EXPECT_GT(tokens.clear, tokens.total / 3) << "too few clear tokens to prove anything";
  RecordProperty("clear_tokens", tokens.clear);
}

// Keys and values are some of the factors that transformers rounds to eight bits of precision; with
// four, 16 times its error is what their roundings make.
TEST_P(GpuParity, LogitsStayNearWithEightBitKv) {
  RunnerOptions options = WideOptions(GetParam());
  options.kv_dtype = DType::kE4M3;
  ModelRunner runner(WideDir(GetParam()), {}, options, *backend_);
  const double worst = WorstError(expected_, runner);
  EXPECT_GT(worst, 1e-3);
  EXPECT_LT(worst, std::min(0.5, 16 * expected_.bf16_relative_error));
  RecordProperty("relative_error", std::to_string(worst));
}

// The same of matrices and activations.
TEST_P(GpuParity, LogitsStayNearWithEightBitWeights) {
  ModelConfig config = *ModelConfig::Load(WideDir(GetParam()));
  config.quantization.source = Quantization::Source::kWhileLoading;
  RunnerOptions options = WideOptions(GetParam());
  options.eight_bit = true;
  options.width_multiple = kCudaLimits.MlpMultiple(true);
  if (const absl::Status can = CheckWide(config, 1, options); !can.ok()) {
    RecordProperty("refused", std::string(can.message()));
    GTEST_SKIP() << can;
  }
  ModelRunner runner(WideDir(GetParam()), {}, options, *backend_);
  const double worst = WorstError(expected_, runner);
  EXPECT_GT(worst, 1e-3);
  EXPECT_LT(worst, std::min(0.5, 16 * expected_.bf16_relative_error));
  RecordProperty("relative_error", std::to_string(worst));
}

// The last tokens of so many prompts, each in a step alone and then all in one step.
void ExpectBitsOfAnyBatch(const Expected& expected, ModelRunner& runner, int32_t rows = 3) {
  std::vector<float> alone;
  std::vector<Slice> batch;
  for (int32_t s = 0; s < rows; ++s) {
    const std::vector<int32_t>& tokens = expected.prompts[s].tokens;
    const auto last = static_cast<int32_t>(tokens.size()) - 1;
    runner.RunChunked(tokens, kWhole, {}, s);
    const Slice next{.sequence = s, .context = last, .tokens = {tokens[last]}, .logit_rows = {0}};
    const std::vector<float> logits = runner.Run({next});
    alone.insert(alone.end(), logits.begin(), logits.end());
    batch.push_back(next);
  }
  EXPECT_EQ(runner.Run(batch), alone);
}

TEST_P(GpuParity, BitsDoNotDependOnTheBatch) { ExpectBitsOfAnyBatch(expected_, *runner_); }

INSTANTIATE_TEST_SUITE_P(Checkpoints, GpuParity, ValuesIn(WideCheckpoints()), NameOfCheckpoint);

class GpuNarrowParity : public TestWithParam<NarrowCheckpoint> {
 protected:
  void SetUp() override {
    const absl::StatusOr<ModelConfig> config = ModelConfig::Load(ModelDir(GetParam().name));
    ASSERT_TRUE(config.ok()) << config.status();
    const RunnerOptions options = NarrowOptions(GetParam(), *config);
    if (const absl::Status can = CheckWide(*config, 1, options); !can.ok()) {
      RecordProperty("refused", std::string(can.message()));
      GTEST_SKIP() << can;
    }
    expected_ = ReadExpected(GetParam().name);
    backend_ = MakeBackend(*config);
    ASSERT_NE(backend_, nullptr);
    runner_ = std::make_unique<ModelRunner>(GetParam().name, TpInfo{}, options, *backend_);
  }

  Expected expected_;
  std::unique_ptr<CudaBackend> backend_;
  std::unique_ptr<ModelRunner> runner_;
};

TEST_P(GpuNarrowParity, LogitsAreNearFloat64) {
  const double worst = WorstNarrowError(expected_, 1, *runner_);
  EXPECT_LT(worst, kNarrowErrorsAllowed * expected_.bf16_relative_error);
  RecordProperty("relative_error", std::to_string(worst));
  RecordProperty("relative_error_of_numpy", std::to_string(expected_.bf16_relative_error));
}

// Products of integers have a kernel for one and two tokens and another for more
// (docs/reproducibility.md).
TEST_P(GpuNarrowParity, BitsDoNotDependOnTheBatch) {
  const bool eight_bit = runner_->config().quantization.eight_bit();
  ExpectBitsOfAnyBatch(expected_, *runner_, eight_bit ? 3 : 2);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GpuNarrowParity, ValuesIn(NarrowCheckpoints()), NameOfNarrow);

}  // namespace
}  // namespace quire::testing
