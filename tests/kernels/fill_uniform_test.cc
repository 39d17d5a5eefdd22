// FillUniform: the word of each element, and the distribution of the values. sample_test checks the
// generator against its published vectors.
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/sampling_math.h"
#include "tests/kernels/cases.h"

namespace quire {
namespace {

TEST(FillUniformTest, EachElementHasItsOwnWord) {
  for (int threads : {1, 3}) {
    const std::unique_ptr<Backend> backend = std::move(CreateCpuBackends(1, threads)[0]);
    std::vector<float> values(10'003, NAN);
    backend->FillUniform(
        {.out = {values.data(), DType::kF32, {static_cast<int64_t>(values.size())}},
         .seed = 7,
         .amplitude = 0.5f});
    double sum = 0, squares = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t word = Philox4x32(7, {{static_cast<uint32_t>(i / 4), 0, 0, 0}}).word[i % 4];
      EXPECT_NEAR(values[i], (word + 0.5) / 4294967296.0 - 0.5, 1e-7);
      sum += values[i];
      squares += double{values[i]} * values[i];
    }
    const auto n = static_cast<double>(values.size());
    // Mean 0 and variance 1/12; ten standard errors.
    EXPECT_NEAR(sum / n, 0, 10 * std::sqrt(1.0 / 12 / n));
    EXPECT_NEAR(squares / n, 1.0 / 12, 10 * std::sqrt(1.0 / 180 / n));
  }
}

}  // namespace
}  // namespace quire
