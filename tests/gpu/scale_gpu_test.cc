// AddScaled and Scale on the device against double arithmetic, rounded once. Rows of logits have
// any width and begin at any element.
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

std::string Bytes(const DeviceTensor& tensor) {
  Array all = tensor.Get();
  return std::string(static_cast<char*>(all.data()), all.byte_size());
}

TEST(AddScaledGpuTest, MatchesDoubleArithmetic) {
  for (DType dtype : kFloatTypes) {
    for (int64_t width : {8, 72, 2048, 16384}) {
      for (int64_t tokens : {1, 3, 150}) {
        Random random(static_cast<uint64_t>(width + tokens));
        Array x = Array::Normal(random, dtype, {tokens, width}, 3.0);
        Array before = Array::Normal(random, dtype, {tokens, width});
        DeviceTensor in(dtype, tokens, width, x, 8), out(dtype, tokens, width, before, 16);
        constexpr float kScale = 0.22f;
        cuda::AddScaled({.x = in.view(), .scale = kScale, .out = out.view()}, TestDevice());
        Array got = out.Get();
        for (int64_t i = 0; i < got.size(); ++i) {
          const double product = double{kScale} * x[i], exact = before[i] + product;
          ASSERT_LE(std::abs(got[i] - exact), (StoreError(dtype) + kRounding) * std::abs(exact) +
                                                  (dtype == DType::kF16 ? 0x1p-25 : 0))
              << Name(dtype) << " " << i;
        }
      }
    }
  }
}

// 2500 tokens are enough for several eights a thread.
TEST(AddScaledGpuTest, BitsDoNotDependOnTheBatch) {
  constexpr int64_t kWidth = 4096, kTokens = 2500;
  Random random(4);
  Array x = Array::Normal(random, DType::kBF16, {kTokens, kWidth});
  Array before = Array::Normal(random, DType::kBF16, {kTokens, kWidth});
  DeviceTensor in(DType::kBF16, kTokens, kWidth, x), out(DType::kBF16, kTokens, kWidth);
  ExpectSameBits(
      [&](const cuda::Device& device) {
        out.Set(before);
        cuda::AddScaled({.x = in.view(), .scale = 0.3f, .out = out.view()}, device);
      },
      [&] { return Bytes(out); });
  const std::string together = Bytes(out);
  out.Set(before);
  for (int64_t t = 0; t < kTokens; ++t) {
    cuda::AddScaled({.x = in.view().Rows(t, 1), .scale = 0.3f, .out = out.view().Rows(t, 1)},
                    TestDevice());
  }
  EXPECT_TRUE(Bytes(out) == together);
}

// `gap` elements lie between rows; an odd one moves each row to another alignment.
void CheckScale(DType dtype, int64_t rows, int64_t width, int64_t gap, float cap) {
  Random random(static_cast<uint64_t>(rows * 1000 + width + gap));
  Array x = Array::Normal(random, dtype, {rows, width}, 40.0);
  const float extremes[] = {-30000.0f, -300.0f, -0.0f, 1e-3f, 240.0f, 30000.0f};
  for (int64_t i = 0; i < std::min<int64_t>(width, 6); ++i) x.Set(i, extremes[i]);
  DeviceTensor tensor(dtype, rows, width, x, gap);
  constexpr float kFactor = 0.3f;
  cuda::Scale({.x = tensor.view(), .factor = kFactor, .cap = cap}, TestDevice());
  Array got = tensor.Get();
  // One rounding of the product. The cap: those of its inverse and of the quotient, two units in
  // the last place of tanhf, and a product.
  const double error = (cap > 0 ? 8 : 1) * kRounding;
  for (int64_t i = 0; i < got.size(); ++i) {
    const double scaled = double{kFactor} * x[i];
    const double exact = cap > 0 ? cap * std::tanh(scaled / cap) : scaled;
    ASSERT_LE(std::abs(got[i] - exact),
              (StoreError(dtype) + error) * std::abs(exact) + (dtype == DType::kF16 ? 0x1p-25 : 0))
        << x[i];
  }
}

TEST(ScaleGpuTest, MatchesDoubleArithmeticOfRowsOfAnyWidthAndAlignment) {
  for (DType dtype : kFloatTypes) {
    for (const float cap : {0.0f, 30.0f, 0.5f}) {
      for (int64_t width : {1, 3, 8, 131, 4096, 50257}) {
        for (int64_t rows : {1, 2, 5}) {
          for (int64_t gap : {0, 1, 8}) {
            SCOPED_TRACE(std::string(Name(dtype)) + " " + std::to_string(rows) + " x " +
                         std::to_string(width) + " gap " + std::to_string(gap));
            CheckScale(dtype, rows, width, gap, cap);
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Rows by themselves begin where the widths before them end, at any element.
TEST(ScaleGpuTest, BitsDoNotDependOnTheBatch) {
  constexpr int64_t kRows = 21;
  for (int64_t width : {131, 262144, 262143}) {
    Random random(static_cast<uint64_t>(width));
    Array x = Array::Normal(random, DType::kF32, {kRows, width}, 40.0);
    DeviceTensor logits(DType::kF32, kRows, width);
    ExpectSameBits(
        [&](const cuda::Device& device) {
          logits.Set(x);
          cuda::Scale({.x = logits.view(), .factor = 0.7f, .cap = 30}, device);
        },
        [&] { return Bytes(logits); });
    const std::string together = Bytes(logits);
    logits.Set(x);
    for (int64_t r = 0; r < kRows; ++r) {
      cuda::Scale({.x = logits.view().Rows(r, 1), .factor = 0.7f, .cap = 30}, TestDevice());
    }
    EXPECT_TRUE(Bytes(logits) == together);
  }
}

}  // namespace
}  // namespace quire::gpu
