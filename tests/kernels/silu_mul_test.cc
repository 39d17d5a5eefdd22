// SiluMul against double arithmetic, also far from zero on both sides.
#include <gtest/gtest.h>

#include "tests/kernels/cases.h"

namespace quire {
namespace {

TEST(SiluMulTest, MatchesDoubleArithmeticAndIsTheSameOnEveryMachine) {
  for (int64_t tokens : {0, 1, 5, 41}) {
    for (int64_t width : {1, 15, 16, 33, 700}) {
      Random random(width);
      Array gate_up = Array::Normal(random, DType::kF32, {tokens, 2 * width}, 4.0);
      if (tokens > 0) {
        const float extremes[] = {-200.0f, -88.5f, -87.0f, -0.0f, 1e-30f, 88.5f, 1e30f};
        for (int64_t i = 0; i < std::min<int64_t>(width, 7); ++i) gate_up.Set(i, extremes[i]);
      }
      Array first;
      OnEveryMachine([&](Backend& backend, const Machine& machine) {
        SCOPED_TRACE(machine.name());
        Array out(DType::kF32, {tokens, width});
        backend.SiluMul({.gate_up = gate_up.view(), .out = out.view()});
        if (first.size() == 0) first = out.Copy();
        ASSERT_TRUE(out.SameBits(first));
      });
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t i = 0; i < width; ++i) {
          const double g = gate_up[t * 2 * width + i], u = gate_up[t * 2 * width + width + i];
          const double expected = g / (1.0 + std::exp(-g)) * u;
          // Two roundings of 2 ulp for the exponential, three for the rest; results below the
          // smallest e^-88 count as zero.
          ASSERT_NEAR(first[t * width + i], expected, 8 * kRounding * std::abs(expected) + 1e-33);
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire
