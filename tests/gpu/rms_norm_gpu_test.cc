// RmsNorm on the device against double arithmetic with the roundings of its contract: the residual
// exactly, the norm within its roundings. Bits must not depend on the batch, repetition or
// dependent launch.
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

double RoundedTo(DType dtype, double x) {
  Array one(dtype, {1});
  one.Set(0, static_cast<float>(x));
  return one[0];
}

struct Case {
  int64_t tokens, width;
  DType dtype, weight;
  bool with_residual;
};

// Inputs and outputs of one case on the device.
class RmsNormCase {
 public:
  explicit RmsNormCase(const Case& c)
      : c_(c),
        random_(static_cast<uint64_t>(c.tokens * 100000 + c.width)),
        x_(Array::Normal(random_, c.dtype, {c.tokens, c.width}, 3.0)),
        residual_(Array::Normal(random_, c.dtype, {c.tokens, c.width})),
        weight_(Array::Normal(random_, c.weight, {c.width})),
        device_x_(c.dtype, c.tokens, c.width, x_, 8),
        device_residual_(c.dtype, c.tokens, c.width, residual_),
        device_weight_(c.weight, 1, c.width, weight_),
        out_(c.dtype, c.tokens, c.width, 16) {}

  void Run(const cuda::Device& device) {
    device_residual_.Set(residual_);
    out_.Poison();
    cuda::RmsNorm(Params(0, c_.tokens), device);
  }
  RmsNormParams Params(int64_t begin, int64_t count) const {
    TensorView weight = device_weight_.view();
    return {
        .x = device_x_.view().Rows(begin, count),
        .residual = c_.with_residual ? device_residual_.view().Rows(begin, count) : TensorView(),
        .weight = TensorView(weight.data, c_.weight, {c_.width}),
        .eps = kEps,
        .out = out_.view().Rows(begin, count)};
  }
  std::pair<Array, Array> Get() const { return {out_.Get(), device_residual_.Get()}; }

  void Check() {
    auto [out, sum] = Get();
    int64_t different = 0;
    for (int64_t t = 0; t < c_.tokens; ++t) {
      double squares = 0;
      std::vector<double> v(static_cast<size_t>(c_.width));
      for (int64_t i = 0; i < c_.width; ++i) {
        const int64_t at = t * c_.width + i;
        double& value = v[static_cast<size_t>(i)];
        value = x_[at];
        if (c_.with_residual) value = RoundedTo(c_.dtype, x_[at] + residual_[at]);
        squares += value * value;
        ASSERT_EQ(sum[at], c_.with_residual ? value : residual_[at]);
      }
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(c_.width) + kEps);
      for (int64_t i = 0; i < c_.width; ++i) {
        const double exact = v[static_cast<size_t>(i)] * factor * weight_[i];
        const double got = out[t * c_.width + i];
        // Rounded twice.
        ASSERT_LE(std::abs(got - exact),
                  (2.01 * StoreError(c_.dtype) + 1e-5) * std::abs(exact) + 1e-7)
            << t << " " << i;
        const double rounded = RoundedTo(
            c_.dtype, RoundedTo(c_.dtype, v[static_cast<size_t>(i)] * factor) * weight_[i]);
        different += got != rounded;
      }
    }
    // The sum's own rounding may tip a rounding the other way, but seldom.
    if (c_.dtype == DType::kF32) return;
    EXPECT_LE(different, 5 + c_.tokens * c_.width / 100);
  }

 private:
  static constexpr float kEps = 1e-5f;
  const Case c_;
  Random random_;
  Array x_, residual_, weight_;
  DeviceTensor device_x_, device_residual_, device_weight_, out_;
};

TEST(RmsNormGpuTest, MatchesDoubleArithmetic) {
  for (int64_t width : {8, 64, 896, 2048, 4096, 8192, 16384}) {
    for (int64_t tokens : {1, 5, 37}) {
      for (DType dtype : kFloatTypes) {
        for (DType weight : {dtype, DType::kF32}) {
          for (bool with_residual : {false, true}) {
            RmsNormCase c({tokens, width, dtype, weight, with_residual});
            c.Run(TestDevice());
            SCOPED_TRACE(std::to_string(tokens) + " x " + std::to_string(width) + " " +
                         Name(dtype));
            c.Check();
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(RmsNormGpuTest, MatchesDoubleArithmeticInLargeBatches) {
  RmsNormCase c({1024, 4096, DType::kBF16, DType::kBF16, true});
  c.Run(TestDevice());
  c.Check();
}

TEST(RmsNormGpuTest, BitsDoNotDependOnTheBatch) {
  for (int64_t width : {896, 4096, 8192}) {
    for (int64_t tokens : {2, 16, 256, 2048}) {
      RmsNormCase c({tokens, width, DType::kBF16, DType::kBF16, true});
      c.Run(TestDevice());
      auto [together, sum] = c.Get();
      c.Run(TestDevice());
      const int64_t step = tokens > 300 ? 97 : 1;
      RmsNormCase alone({tokens, width, DType::kBF16, DType::kBF16, true});
      for (int64_t t = 0; t < tokens; t += step) {
        cuda::RmsNorm(alone.Params(t, 1), TestDevice());
      }
      auto [out, residual] = alone.Get();
      for (int64_t t = 0; t < tokens; t += step) {
        ASSERT_EQ(RowBytes(out, t, width, DType::kBF16),
                  RowBytes(together, t, width, DType::kBF16));
        ASSERT_EQ(RowBytes(residual, t, width, DType::kBF16),
                  RowBytes(sum, t, width, DType::kBF16));
      }
    }
  }
}

// As the norm of queries over all heads, which are columns of the product.
TEST(RmsNormGpuTest, WorksInPlaceInColumnsOfAWiderMatrix) {
  constexpr int64_t kBefore = 16, kBehind = 24, kTokens = 33;
  for (int64_t width : {128, 5120, 16384}) {
    const int64_t stride = kBefore + width + kBehind;
    Random random(static_cast<uint64_t>(width));
    Array x = Array::Normal(random, DType::kBF16, {kTokens, stride});
    Array weight = Array::Normal(random, DType::kF32, {width});
    DeviceTensor whole(DType::kBF16, kTokens, stride, x, 8), out(DType::kBF16, kTokens, width);
    DeviceTensor device_weight(DType::kF32, 1, width, weight);
    const TensorView columns = whole.view().Columns(kBefore, width);
    for (const TensorView& to : {out.view(), columns}) {
      cuda::RmsNorm({.x = columns,
                     .residual = {},
                     .weight = TensorView(device_weight.view().data, DType::kF32, {width}),
                     .eps = 1e-6f,
                     .out = to},
                    TestDevice());
    }
    Array expected = out.Get(), got = whole.Get();
    for (int64_t t = 0; t < kTokens; ++t) {
      const std::string row = RowBytes(got, t, stride, DType::kBF16);
      const std::string old = RowBytes(x, t, stride, DType::kBF16);
      ASSERT_TRUE(row.substr(0, 2 * kBefore) == old.substr(0, 2 * kBefore));
      ASSERT_TRUE(row.substr(2 * kBefore, 2 * width) == RowBytes(expected, t, width, DType::kBF16));
      ASSERT_TRUE(row.substr(2 * (kBefore + width)) == old.substr(2 * (kBefore + width)));
    }
  }
}

TEST(RmsNormGpuTest, RepeatsTheSameBits) {
  RmsNormCase c({64, 4096, DType::kBF16, DType::kBF16, true});
  ExpectSameBits([&](const cuda::Device& device) { c.Run(device); },
                 [&] {
                   auto [out, residual] = c.Get();
                   return std::string(static_cast<char*>(out.data()), out.byte_size()) +
                          std::string(static_cast<char*>(residual.data()), residual.byte_size());
                 });
}

TEST(RmsNormGpuTest, DependentLaunchDoesNotChangeBits) {
  // Each norm reads and overwrites the output of the one before.
  constexpr int64_t kTokens = 300, kWidth = 2048;
  Random random(5);
  Array start = Array::Normal(random, DType::kBF16, {kTokens, kWidth});
  Array weight = Array::Normal(random, DType::kBF16, {kWidth});
  DeviceTensor x(DType::kBF16, kTokens, kWidth), residual(DType::kBF16, kTokens, kWidth);
  DeviceTensor device_weight(DType::kBF16, 1, kWidth, weight);
  ExpectSameBits(
      [&](const cuda::Device& device) {
        x.Set(start);
        residual.Set(start);
        for (int layer = 0; layer < 50; ++layer) {
          cuda::RmsNorm({.x = x.view(),
                         .residual = residual.view(),
                         .weight = TensorView(device_weight.view().data, DType::kBF16, {kWidth}),
                         .eps = 1e-6f,
                         .out = x.view()},
                        device);
        }
      },
      [&] {
        Array all = residual.Get();
        return std::string(static_cast<char*>(all.data()), all.byte_size());
      });
}

}  // namespace
}  // namespace quire::gpu
