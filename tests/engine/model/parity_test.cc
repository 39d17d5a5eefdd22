// Every family on the CPU backend against transformers: logits, greedy tokens, chunked prefill,
// batches, several ranks and 16-bit weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "kernels/device_limits.h"
#include "tests/engine/model/checkpoints.h"
#include "tests/engine/model/model_runner.h"
#include "tests/kernels/forked_ranks.h"

namespace quire::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::TestWithParam;
using ::testing::ValuesIn;

constexpr int32_t kWhole = 1000;  // a chunk longer than any prompt
// Both sides compute in float32; transformers' own distance to float64 on these checkpoints is at
// most 2e-6, and the roundings of the other order of summation are as many.
constexpr double kTolerance = 1e-4;

// The tokens whose logits are kept: the prompt and its continuation but for the last.
std::vector<int32_t> Known(const Expected::Prompt& prompt) {
  std::vector<int32_t> ids = prompt.tokens;
  ids.insert(ids.end(), prompt.greedy.begin(), prompt.greedy.end() - 1);
  return ids;
}

// Runs body(runner) on each of `ranks` rank threads.
void OnRanks(const std::string& name, int32_t ranks, const RunnerOptions& options,
             const std::function<void(int32_t rank, ModelRunner&)>& body) {
  std::vector<std::unique_ptr<Backend>> backends = CreateCpuBackends(ranks, ranks);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ModelRunner runner(name, {rank, ranks}, options, *backends[rank]);
      body(rank, runner);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void ExpectLogitsAndGreedyTokens(const Expected& expected, ModelRunner& runner) {
  for (const Expected::Prompt& prompt : expected.prompts) {
    SCOPED_TRACE(prompt.tokens.size());
    const std::vector<float> logits = runner.RunChunked(Known(prompt), kWhole, prompt.positions);
    const double error = RelativeError(logits, prompt.logits);
    EXPECT_LT(error, kTolerance);
    ::testing::Test::RecordProperty("error_after_" + std::to_string(prompt.tokens.size()),
                                    ::testing::PrintToString(error));
    EXPECT_THAT(runner.Greedy(prompt.tokens, kWhole, static_cast<int32_t>(prompt.greedy.size())),
                ElementsAreArray(prompt.greedy));
  }
}

class Parity : public TestWithParam<TestCheckpoint> {
 protected:
  static std::string Name() { return GetParam().name; }

  const Expected expected_ = ReadExpected(Name());
};

TEST_P(Parity, LogitsAndGreedyTokensEqualTransformers) {
  OnRanks(Name(), 1, {},
          [&](int32_t, ModelRunner& runner) { ExpectLogitsAndGreedyTokens(expected_, runner); });
}

TEST_P(Parity, ChunkedPrefillGivesTheSameBits) {
  OnRanks(Name(), 1, {}, [&](int32_t, ModelRunner& runner) {
    const Expected::Prompt& prompt = expected_.prompts.back();
    const std::vector<float> whole = runner.RunChunked(Known(prompt), kWhole, prompt.positions);
    for (int32_t chunk : {7, 64}) {
      EXPECT_EQ(runner.RunChunked(Known(prompt), chunk, prompt.positions), whole) << chunk;
    }
  });
}

TEST_P(Parity, NeighboursInTheBatchChangeNoBit) {
  OnRanks(Name(), 1, {}, [&](int32_t, ModelRunner& runner) {
    std::vector<float> alone;
    std::vector<Slice> batch;
    for (int32_t s = 0; s < 3; ++s) {
      const std::vector<int32_t>& tokens = expected_.prompts[s].tokens;
      const auto last = static_cast<int32_t>(tokens.size()) - 1;
      const std::vector<float> logits = runner.RunChunked(tokens, kWhole, {last}, s);
      alone.insert(alone.end(), logits.begin(), logits.end());
      batch.push_back({.sequence = s, .tokens = tokens, .logit_rows = {last}});
    }
    EXPECT_EQ(runner.Run(batch), alone);
    // Logits of no row at all are a step too: a chunk in the middle of a prompt.
    EXPECT_TRUE(runner.Run({{.tokens = {5, 6}}}).empty());
  });
}

// Four and eight ranks hold a key/value head several times, and a padded vocabulary.
TEST_P(Parity, RanksGiveTheTokensOfOne) {
  const ModelConfig config = *ModelConfig::Load(ModelDir(Name()));
  for (const int32_t ranks : {2, 4, 8}) {
    if (!config.CheckTensorParallel(ranks).ok()) continue;
    SCOPED_TRACE(ranks);
    std::vector<std::vector<std::vector<float>>> logits(ranks);
    std::vector<std::vector<std::vector<int32_t>>> tokens(ranks);
    OnRanks(Name(), ranks, {}, [&](int32_t rank, ModelRunner& runner) {
      for (const Expected::Prompt& prompt : expected_.prompts) {
        logits[rank].push_back(runner.RunChunked(Known(prompt), 64, prompt.positions));
        tokens[rank].push_back(
            runner.Greedy(prompt.tokens, kWhole, static_cast<int32_t>(prompt.greedy.size())));
      }
    });
    for (int32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(logits[rank], logits[0]);
      for (size_t i = 0; i < expected_.prompts.size(); ++i) {
        EXPECT_LT(RelativeError(logits[rank][i], expected_.prompts[i].logits), kTolerance);
        EXPECT_EQ(tokens[rank][i], expected_.prompts[i].greedy);
      }
    }
  }
}

// Ranks that are processes exchange through other memory; the tokens are the same.
TEST_P(Parity, RanksAsProcessesGiveTheTokensOfOne) {
  const ModelConfig config = *ModelConfig::Load(ModelDir(Name()));
  for (const int32_t ranks : {2, 4, 8}) {
    if (!config.CheckTensorParallel(ranks).ok()) continue;
    EXPECT_TRUE(OnForkedRanks(ranks, [&](const RankPlace& place) {
      std::string why;
      const std::unique_ptr<Backend> backend = CreateCpuBackend(place, 1, &why);
      if (backend == nullptr) return false;
      ModelRunner runner(Name(), {place.rank, place.ranks}, {}, *backend);
      const Expected::Prompt& prompt = expected_.prompts.back();
      const std::vector<float> logits = runner.RunChunked(Known(prompt), 64, prompt.positions);
      return RelativeError(logits, prompt.logits) < kTolerance &&
             runner.Greedy(prompt.tokens, kWhole, static_cast<int32_t>(prompt.greedy.size())) ==
                 prompt.greedy;
    })) << ranks;
  }
}

// The tolerance of bf16. One rounding to bf16 (8 significant bits) is off by at most u = 2^-8 of
// the value, by 0.4 u = 1.6e-3 in the root mean square: u / sqrt(3) of the power of two below,
// times 0.7 for the mean mantissa. A layer rounds the weights of its 4 products, and K and V, on
// the path of a token; independent errors add in quadrature, so L layers, embedding and head
// give 1.6e-3 * sqrt(6 L + 2), 6e-3 to 7e-3 here, times the network's own condition: attention
// whose logits have the standard deviation s multiplies an error of its scores by about s, here 2
// to 5. That factor is a property of the weights and has to be measured, and it is in the error
// that transformers makes when it computes the same checkpoint in bf16 and rounds these operands
// and every activation besides (2 to 4.5 percent). Rounding fewer things, we must not be further
// off than that.
TEST_P(Parity, Bf16WeightsAndCacheStayWithinTheErrorOfBf16) {
  const RunnerOptions options{.weight_dtype = DType::kBF16, .kv_dtype = DType::kBF16};
  OnRanks(Name(), 1, options, [&](int32_t, ModelRunner& runner) {
    double worst = 0;
    for (const Expected::Prompt& prompt : expected_.prompts) {
      const std::vector<float> logits = runner.RunChunked(Known(prompt), kWhole, prompt.positions);
      worst = std::max(worst, RelativeError(logits, prompt.logits));
    }
    EXPECT_LT(worst, expected_.bf16_relative_error);
    EXPECT_GT(worst, 1e-5) << "nothing was rounded";
    RecordProperty("relative_error", std::to_string(worst));
  });
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Parity, ValuesIn(kCheckpoints), NameOfCheckpoint);

// The shapes differ in the kernels' loops alone, so one rank, or two where they divide, shows them.
class ShapeParity : public TestWithParam<TestCheckpoint> {};

// As they are, and with odd widths padded as CUDA pads them.
TEST_P(ShapeParity, LogitsAndGreedyTokensEqualTransformers) {
  const std::string name = GetParam().name;
  const ModelConfig config = *ModelConfig::Load(ModelDir(name));
  const Expected expected = ReadExpected(name);
  for (const int32_t ranks : {1, 2}) {
    if (!config.CheckTensorParallel(ranks).ok()) continue;
    const bool even = config.intermediate_size / ranks % kCudaLimits.width_multiple == 0;
    for (const int32_t multiple : {1, kCudaLimits.width_multiple}) {
      if (multiple > 1 && even) continue;
      SCOPED_TRACE(std::to_string(ranks) + " ranks, multiple " + std::to_string(multiple));
      OnRanks(name, ranks, {.width_multiple = multiple},
              [&](int32_t, ModelRunner& runner) { ExpectLogitsAndGreedyTokens(expected, runner); });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ShapeParity, ValuesIn(kShapes), NameOfCheckpoint);

// A checkpoint kept in its own 16-bit type is the same model: widening is exact.
TEST(StoredTypeTest, SixteenBitWeightsKeptAsStoredAreExact) {
  const std::pair<const char*, DType> cases[] = {{"llama-bf16", DType::kBF16},
                                                 {"llama-f16", DType::kF16}};
  for (const auto& [name, dtype] : cases) {
    const Expected expected = ReadExpected(name);
    OnRanks(name, 1, {.weight_dtype = dtype}, [&](int32_t, ModelRunner& runner) {
      for (const Expected::Prompt& prompt : expected.prompts) {
        const std::vector<float> logits =
            runner.RunChunked(Known(prompt), kWhole, prompt.positions);
        EXPECT_LT(RelativeError(logits, prompt.logits), kTolerance);
        EXPECT_EQ(runner.Greedy(prompt.tokens, kWhole, static_cast<int32_t>(prompt.greedy.size())),
                  prompt.greedy);
      }
    });
  }
}

}  // namespace
}  // namespace quire::testing
