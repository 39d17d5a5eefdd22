// SiluMul on the device against double arithmetic, rounded once.
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

TEST(SiluMulGpuTest, MatchesDoubleArithmetic) {
  for (DType dtype : kFloatTypes) {
    for (int64_t width : {8, 64, 4864, 14336}) {
      for (int64_t tokens : {1, 3, 150}) {
        Random random(static_cast<uint64_t>(width + tokens));
        Array x = Array::Normal(random, dtype, {tokens, 2 * width}, 4.0);
        // g at which e^-g overflows, and at which it vanishes.
        x.Set(0, -100.0f);
        x.Set(1, -87.5f);
        x.Set(2, 95.0f);
        x.Set(3, 0.0f);
        DeviceTensor gate_up(dtype, tokens, 2 * width, x, 8);
        DeviceTensor out(dtype, tokens, width, 8);
        cuda::SiluMul({.gate_up = gate_up.view(), .out = out.view()}, TestDevice());
        Array got = out.Get();
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t i = 0; i < width; ++i) {
            const double gate = x[t * 2 * width + i], up = x[t * 2 * width + width + i];
            const double exact = gate / (1.0 + std::exp(-gate)) * up;
            ASSERT_LE(std::abs(got[t * width + i] - exact),
                      (StoreError(dtype) + 4e-6) * std::abs(exact) + 1e-7)
                << Name(dtype) << " " << gate << " " << up;
          }
        }
      }
    }
  }
}

TEST(SiluMulGpuTest, BitsDoNotDependOnTheBatch) {
  constexpr int64_t kWidth = 14336, kTokens = 700;  // enough for several elements a thread
  Random random(3);
  Array x = Array::Normal(random, DType::kBF16, {kTokens, 2 * kWidth}, 3.0);
  DeviceTensor gate_up(DType::kBF16, kTokens, 2 * kWidth, x);
  DeviceTensor out(DType::kBF16, kTokens, kWidth), alone(DType::kBF16, kTokens, kWidth);
  ExpectSameBits(
      [&](const cuda::Device& device) {
        out.Poison();
        cuda::SiluMul({.gate_up = gate_up.view(), .out = out.view()}, device);
      },
      [&] {
        Array all = out.Get();
        return std::string(static_cast<char*>(all.data()), all.byte_size());
      });
  for (int64_t t = 0; t < kTokens; ++t) {
    cuda::SiluMul({.gate_up = gate_up.view().Rows(t, 1), .out = alone.view().Rows(t, 1)},
                  TestDevice());
  }
  EXPECT_TRUE(alone.Get().SameBits(out.Get()));
}

}  // namespace
}  // namespace quire::gpu
