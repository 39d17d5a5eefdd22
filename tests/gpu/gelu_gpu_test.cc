// Gelu on the device, with a gate and without, against double arithmetic, rounded once.
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

// gelu(x) and the relative error of floats: the exponent's rounding is relative, so the error grows
// with it, up to 88 of them. Beyond that the result is below all that a float holds.
std::pair<double, double> Exact(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return {x / (1 + std::exp(-2 * u)), (16 + 8 * std::min(std::abs(2 * u), 88.0)) * kRounding};
}

void CheckShape(DType dtype, bool gated, int64_t tokens, int64_t width) {
  const int64_t columns = (gated ? 2 : 1) * width;
  Random random(static_cast<uint64_t>(columns + tokens));
  Array x = Array::Normal(random, dtype, {tokens, columns}, 3.0);
  // Where e^-2u overflows and vanishes, and where x^2 overflows; f16 ends before the last two.
  const float extremes[] = {-100.0f, -12.0f, -5.0f, -0.0f, 1e-4f, 9.5f, -1e15f, 1e20f};
  for (int64_t i = 0; i < (dtype == DType::kF16 ? 6 : 8); ++i) x.Set(i, extremes[i]);
  DeviceTensor in(dtype, tokens, columns, x, 8), out(dtype, tokens, width, 8);
  cuda::Gelu({.x = in.view(), .gated = gated, .out = out.view()}, TestDevice());
  Array got = out.Get();
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < width; ++i) {
      const double v = x[t * columns + i], up = gated ? x[t * columns + width + i] : 1.0;
      const auto [gelu, error] = Exact(v);
      ASSERT_LE(std::abs(got[t * width + i] - gelu * up),
                (StoreError(dtype) + error) * std::abs(gelu * up) + 1e-7)
          << Name(dtype) << " " << v << " " << up;
    }
  }
}

TEST(GeluGpuTest, MatchesDoubleArithmetic) {
  for (DType dtype : kFloatTypes) {
    for (const bool gated : {false, true}) {
      for (int64_t width : {8, 72, 4864, 14336}) {
        for (int64_t tokens : {1, 3, 37}) {
          CheckShape(dtype, gated, tokens, width);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// 700 tokens are enough for several eights a thread.
TEST(GeluGpuTest, BitsDependNeitherOnTheBatchNorOnThePlaceOfTheOutput) {
  constexpr int64_t kWidth = 14336, kTokens = 700;
  for (const bool gated : {false, true}) {
    const int64_t columns = (gated ? 2 : 1) * kWidth;
    Random random(3);
    Array x = Array::Normal(random, DType::kBF16, {kTokens, columns}, 3.0);
    DeviceTensor in(DType::kBF16, kTokens, columns, x);
    DeviceTensor out(DType::kBF16, kTokens, kWidth), alone(DType::kBF16, kTokens, kWidth);
    ExpectSameBits(
        [&](const cuda::Device& device) {
          out.Poison();
          cuda::Gelu({.x = in.view(), .gated = gated, .out = out.view()}, device);
        },
        [&] {
          Array all = out.Get();
          return std::string(static_cast<char*>(all.data()), all.byte_size());
        });
    for (int64_t t = 0; t < kTokens; ++t) {
      cuda::Gelu({.x = in.view().Rows(t, 1), .gated = gated, .out = alone.view().Rows(t, 1)},
                 TestDevice());
    }
    Array expected = out.Get();
    EXPECT_TRUE(alone.Get().SameBits(expected));
    // In place, in the columns of the activation's operand.
    cuda::Gelu({.x = in.view(), .gated = gated, .out = in.view().Columns(0, kWidth)}, TestDevice());
    Array all = in.Get();
    for (int64_t t = 0; t < kTokens; ++t) {
      ASSERT_EQ(RowBytes(all, t, columns, DType::kBF16).substr(0, 2 * kWidth),
                RowBytes(expected, t, kWidth, DType::kBF16));
    }
  }
}

}  // namespace
}  // namespace quire::gpu
