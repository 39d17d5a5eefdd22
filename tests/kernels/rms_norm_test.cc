// RmsNorm against double arithmetic: with and without residual, in place, and the same bits in
// every batch and on every machine.
#include <gtest/gtest.h>

#include "tests/kernels/cases.h"

namespace quire {
namespace {

TEST(RmsNormTest, MatchesDoubleArithmeticAndIsTheSameOnEveryMachine) {
  for (int64_t tokens : {0, 1, 3, 37}) {
    for (int64_t width : {1, 7, 16, 64, 257, 1024, 4096}) {
      for (DType dtype : kFloatTypes) {
        for (bool with_residual : {false, true}) {
          Random random(tokens * 10000 + width);
          Array x = Array::Normal(random, DType::kF32, {tokens, width}, 3.0);
          Array residual = Array::Normal(random, DType::kF32, {tokens, width});
          Array weight = Array::Normal(random, dtype, {width});
          const float eps = 1e-5f;
          Array first;
          OnEveryMachine([&](Backend& backend, const Machine& machine) {
            SCOPED_TRACE(machine.name());
            Array out(DType::kF32, {tokens, width});
            Array sum = residual.Copy();
            backend.RmsNorm({.x = x.view(),
                             .residual = with_residual ? sum.view() : TensorView(),
                             .weight = weight.view(),
                             .eps = eps,
                             .out = out.view()});
            for (int64_t i = 0; i < sum.size(); ++i) {
              const float expected =
                  with_residual ? x.floats()[i] + residual.floats()[i] : residual.floats()[i];
              ASSERT_EQ(sum.floats()[i], expected);
            }
            if (first.size() == 0) first = out.Copy();
            ASSERT_TRUE(out.SameBits(first));
          });
          for (int64_t t = 0; t < tokens; ++t) {
            const auto input = [&](int64_t i) {
              const int64_t at = t * width + i;
              return with_residual ? double{x.floats()[at] + residual.floats()[at]} : x[at];
            };
            double squares = 0;
            for (int64_t i = 0; i < width; ++i) squares += input(i) * input(i);
            const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + eps);
            for (int64_t i = 0; i < width; ++i) {
              const double expected = input(i) * factor * weight[i];
              ASSERT_LE(std::abs(first[t * width + i] - expected),
                        (SumError(width) + 6 * kRounding) * std::abs(expected));
            }
          }
        }
      }
    }
  }
}

TEST(RmsNormTest, WorksInPlaceAndBitsDoNotDependOnTheBatch) {
  Random random(3);
  Array x = Array::Normal(random, DType::kF32, {37, 130});
  Array weight = Array::Normal(random, DType::kBF16, {130});
  OnEveryMachine([&](Backend& backend, const Machine& machine) {
    SCOPED_TRACE(machine.name());
    Array together(DType::kF32, {37, 130});
    backend.RmsNorm({.x = x.view(), .weight = weight.view(), .eps = 1e-6f, .out = together.view()});
    Array alone = x.Copy();
    for (int64_t t = 0; t < 37; ++t) {
      const TensorView row = alone.view().Rows(t, 1);
      backend.RmsNorm({.x = row, .weight = weight.view(), .eps = 1e-6f, .out = row});
    }
    EXPECT_TRUE(alone.SameBits(together));
  });
}

}  // namespace
}  // namespace quire
