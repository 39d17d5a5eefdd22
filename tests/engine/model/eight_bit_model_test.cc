// Every family with matrices that become 8-bit as they are read, and with 8-bit keys and values:
// near the same model in float32, and the same bits in chunks.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/model/checkpoints.h"
#include "tests/engine/model/model_runner.h"

namespace quire::testing {
namespace {

class EightBitModel : public ::testing::TestWithParam<TestCheckpoint> {
 protected:
  // Compares with the wide model.
  static void ExpectNear(const RunnerOptions& options) {
    const Expected expected = ReadExpected(GetParam().name);
    const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, 1)[0]);
    ModelRunner runner(GetParam().name, {}, options, *backend);
    for (const Expected::Prompt& prompt : expected.prompts) {
      std::vector<int32_t> known = prompt.tokens;
      known.insert(known.end(), prompt.greedy.begin(), prompt.greedy.end() - 1);
      const std::vector<float> logits = runner.RunChunked(known, 1000, prompt.positions);
      const double error = RelativeError(logits, prompt.logits);
      RecordProperty("error_after_" + std::to_string(prompt.tokens.size()),
                     ::testing::PrintToString(error));
      EXPECT_GT(error, 1e-3);
      EXPECT_LT(error, std::min(0.5, 16 * expected.bf16_relative_error));
      EXPECT_EQ(runner.RunChunked(known, 7, prompt.positions), logits);
    }
  }
};

// transformers in bfloat16 rounds the same factors, and more, to eight bits of precision; here they
// have four, so 16 times that error is what the same roundings make. The logits of another model
// would be off by more than 1.
TEST_P(EightBitModel, StaysNearTheWideModel) { ExpectNear({.eight_bit = true}); }

// Keys and values are some of those factors.
TEST_P(EightBitModel, StaysNearTheWideModelWithEightBitKv) {
  ExpectNear({.kv_dtype = DType::kE4M3});
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, EightBitModel, ::testing::ValuesIn(FamilyCheckpoints()),
                         NameOfCheckpoint);

}  // namespace
}  // namespace quire::testing
