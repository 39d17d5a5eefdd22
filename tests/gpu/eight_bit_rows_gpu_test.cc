// Operations that write 8-bit rows on the device: RmsNorm, SiluMul, Gelu and Quantize against
// double arithmetic, in poisoned memory.
//
// Covers kernels/cuda/rows/quantize.cu
#include <algorithm>

#include "kernels/ceil_div.h"
#include "kernels/device_limits.h"
#include "kernels/row_scale.h"
#include "tests/gpu/op_test.h"

namespace quire::gpu {
namespace {

// An 8-bit result on the device, whose rows have a scale, or one for each run of `run` columns.
class EightBitOut {
 public:
  EightBitOut(int64_t rows, int64_t width, int32_t run = 0, DType dtype = DType::kE4M3)
      : rows_(rows),
        width_(width),
        run_(run),
        integers_(dtype == DType::kI8),
        elements_(dtype, rows, width, 16),
        scales_(run == 0 ? rows : CeilDiv<int64_t>(width, run) * (rows + kGap)) {}

  TensorView view() const {
    TensorView v = elements_.view();
    v.scales = scales_.data();
    v.scale_columns = run_;
    v.scale_stride = run_ == 0 ? 0 : rows_ + kGap;
    return v;
  }
  void Poison() {
    elements_.Poison();
    scales_.Poison();
  }
  std::string Bytes() const {
    Array elements = elements_.Get();
    const std::vector<float> scales = scales_.Get();
    std::string bytes(static_cast<char*>(elements.data()), elements.byte_size());
    return bytes.append(reinterpret_cast<const char*>(scales.data()), scales.size() * 4);
  }
  // The exact values are within `relative` of what the operation computes before it rounds.
  void Check(const std::vector<double>& exact, double relative) const {
    const Array elements = elements_.Get();
    const std::vector<float> scales = scales_.Get();
    const int64_t run = run_ == 0 ? width_ : run_;
    for (int64_t at = 0; at < rows_ * width_; at += std::min(run, width_ - at % width_)) {
      const int64_t t = at / width_, begin = at % width_, end = std::min(begin + run, width_);
      double largest = 0;
      for (int64_t i = begin; i < end; ++i) {
        largest = std::max(largest, std::abs(exact[t * width_ + i]));
      }
      const double scale = scales[static_cast<size_t>(view().ScaleIndex(t, begin))];
      const double most = integers_ ? 127 : 448;
      ASSERT_NEAR(scale, std::max(largest, 0x1p-100) / most, (relative + 1e-6) * scale) << t;
      for (int64_t i = begin; i < end; ++i) {
        const double x = exact[t * width_ + i];
        // Half a step: of integers one size, of floats in the size of the element.
        const double half =
            integers_ ? scale * (0.5 + 1e-4) : 0x1p-4 * std::abs(x) + scale * 0x1p-10;
        const double bound = half + relative * (std::abs(x) + scale * most);
        ASSERT_LE(std::abs(elements[t * width_ + i] * scale - x), bound) << t << " " << i;
      }
    }
  }

 private:
  static constexpr int64_t kGap = 3;  // scales between two runs' that stay unwritten

  const int64_t rows_, width_;
  const int32_t run_;
  const bool integers_;
  DeviceTensor elements_;
  DeviceArray<float> scales_;
};

std::vector<double> Doubles(const Array& x) {
  std::vector<double> values(static_cast<size_t>(x.size()));
  for (int64_t i = 0; i < x.size(); ++i) values[static_cast<size_t>(i)] = x[i];
  return values;
}

constexpr int64_t kWidths[] = {16, 272, 4096, 8208, 14336, 28672, 32768};

TEST(EightBitRowsGpuTest, QuantizeMatchesDoubleArithmetic) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t width : kWidths) {
      for (int64_t rows : {1, 37}) {
        Random random(static_cast<uint64_t>(width + rows));
        Array x = Array::Normal(random, dtype, {rows, width}, 3.0);
        for (int64_t i = 0; i < width && rows > 1; ++i) x.Set(width + i, 0.0f);
        const DeviceTensor device(dtype, rows, width, x, 8);
        for (int32_t run : {0, kScaleRun}) {
          EightBitOut out(rows, width, run);
          cuda::Quantize({.x = device.view(), .out = out.view()}, TestDevice());
          out.Check(Doubles(x), 0);
        }
      }
    }
  }
}

// Wide rows, of which each has eight blocks or four, among others.
TEST(EightBitRowsGpuTest, ActivationsMatchDoubleArithmetic) {
  constexpr std::pair<int64_t, int64_t> kShapes[] = {{19, 16},    {19, 272},   {19, 4096},
                                                     {11, 8208},  {11, 14336}, {19, 14336},
                                                     {19, 28672}, {11, 32768}};
  for (const auto& [rows, width] : kShapes) {
    Random random(static_cast<uint64_t>(width));
    Array x = Array::Normal(random, DType::kBF16, {rows, 2 * width}, 3.0);
    const DeviceTensor device(DType::kBF16, rows, 2 * width, x, 8);
    std::vector<double> silu, gelu;
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t i = 0; i < width; ++i) {
        const double g = x[t * 2 * width + i], up = x[t * 2 * width + width + i];
        const double u = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
        silu.push_back(g / (1 + std::exp(-g)) * up);
        gelu.push_back(g / (1 + std::exp(-2 * u)) * up);
      }
    }
    for (int32_t run : {0, kScaleRun}) {
      EightBitOut out(rows, width, run);
      cuda::SiluMul({.gate_up = device.view(), .out = out.view()}, TestDevice());
      out.Check(silu, 1e-5);
      out.Poison();
      cuda::Gelu({.x = device.view(), .gated = true, .out = out.view()}, TestDevice());
      out.Check(gelu, 1e-4);
    }
  }
}

TEST(EightBitRowsGpuTest, RmsNormMatchesDoubleArithmeticAndKeepsTheResidual) {
  for (int64_t width : {16, 272, 4096, 8192, 8208, 16320, 16384}) {
    constexpr int64_t kRows = 11;
    const int32_t run = width % 272 == 0 ? kScaleRun : 0;
    Random random(static_cast<uint64_t>(width));
    Array x = Array::Normal(random, DType::kBF16, {kRows, width});
    Array before = Array::Normal(random, DType::kBF16, {kRows, width});
    Array weight = Array::Normal(random, DType::kF32, {width});
    const DeviceTensor device_x(DType::kBF16, kRows, width, x);
    DeviceTensor residual(DType::kBF16, kRows, width, before);
    const DeviceTensor device_weight(DType::kF32, 1, width, weight);
    EightBitOut out(kRows, width, run);
    cuda::RmsNorm({.x = device_x.view(),
                   .residual = residual.view(),
                   .weight = TensorView(device_weight.view().data, DType::kF32, {width}),
                   .eps = 1e-5f,
                   .out = out.view()},
                  TestDevice());
    const Array sum = residual.Get();
    std::vector<double> exact;
    for (int64_t t = 0; t < kRows; ++t) {
      double squares = 0;
      for (int64_t i = 0; i < width; ++i) squares += sum[t * width + i] * sum[t * width + i];
      const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
      for (int64_t i = 0; i < width; ++i) {
        const double added = x[t * width + i] + before[t * width + i];
        ASSERT_LE(std::abs(sum[t * width + i] - added), 0x1p-8 * std::abs(added));
        exact.push_back(sum[t * width + i] * factor * weight[i]);
      }
    }
    out.Check(exact, 0x1p-8);  // the norm rounds to bf16 before the weight
  }
}

TEST(EightBitRowsGpuTest, IntegersMatchDoubleArithmetic) {
  for (int64_t width : kWidths) {
    constexpr int64_t kRows = 5;
    Random random(static_cast<uint64_t>(width));
    Array x = Array::Normal(random, DType::kBF16, {kRows, width}, 3.0);
    for (int64_t i = 0; i < width; ++i) x.Set(width + i, 0.0f);
    Array weight(DType::kF32, {width});
    weight.Fill(1.0f);
    const DeviceTensor device(DType::kBF16, kRows, width, x, 8);
    const DeviceTensor device_weight(DType::kF32, 1, width, weight);
    EightBitOut out(kRows, width, 0, DType::kI8);
    cuda::Quantize({.x = device.view(), .out = out.view()}, TestDevice());
    out.Check(Doubles(x), 0);
    out.Poison();
    std::vector<double> gelu;
    for (int64_t i = 0; i < x.size(); ++i) {
      const double g = x[i], u = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
      gelu.push_back(g / (1 + std::exp(-2 * u)));
    }
    cuda::Gelu({.x = device.view(), .gated = false, .out = out.view()}, TestDevice());
    out.Check(gelu, 1e-4);
    if (width > kCudaLimits.max_hidden) continue;
    out.Poison();
    cuda::RmsNorm({.x = device.view(),
                   .residual = {},
                   .weight = TensorView(device_weight.view().data, DType::kF32, {width}),
                   .eps = 1e-5f,
                   .out = out.view()},
                  TestDevice());
    std::vector<double> norm;
    for (int64_t t = 0; t < kRows; ++t) {
      double squares = 0;
      for (int64_t i = 0; i < width; ++i) squares += x[t * width + i] * x[t * width + i];
      const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
      for (int64_t i = 0; i < width; ++i) norm.push_back(x[t * width + i] * factor);
    }
    out.Check(norm, 0x1p-8);
  }
}

// A NaN shows in the scale, because integers have none.
TEST(EightBitRowsGpuTest, NaNIsTheScaleOfItsRowOfIntegers) {
  constexpr int64_t kRows = 3, kWidth = 4096;
  Random random(1);
  Array x = Array::Normal(random, DType::kBF16, {kRows, kWidth});
  x.Set(kWidth + 77, NAN);
  const DeviceTensor device(DType::kBF16, kRows, kWidth, x);
  DeviceTensor elements(DType::kI8, kRows, kWidth);
  const DeviceArray<float> scales(kRows);
  TensorView out = elements.view();
  out.scales = scales.data();
  cuda::Quantize({.x = device.view(), .out = out}, TestDevice());
  const std::vector<float> got = scales.Get();
  EXPECT_TRUE(std::isfinite(got[0]) && std::isnan(got[1]) && std::isfinite(got[2]));
}

// A scale for each row, or for each run.
class EightBitRunsGpuTest : public ::testing::TestWithParam<int32_t> {};

INSTANTIATE_TEST_SUITE_P(Runs, EightBitRunsGpuTest, ::testing::Values(0, kScaleRun));

TEST_P(EightBitRunsGpuTest, BitsDoNotDependOnTheBatch) {
  constexpr int64_t kRows = 150, kWidth = 14336;  // too many rows for eight blocks each
  Random random(3);
  Array x = Array::Normal(random, DType::kBF16, {kRows, 2 * kWidth}, 3.0);
  const DeviceTensor device(DType::kBF16, kRows, 2 * kWidth, x);
  EightBitOut out(kRows, kWidth, GetParam()), alone(kRows, kWidth, GetParam());
  ExpectSameBits(
      [&](const cuda::Device& on) {
        out.Poison();
        cuda::SiluMul({.gate_up = device.view(), .out = out.view()}, on);
      },
      [&] { return out.Bytes(); });
  for (int64_t rows : {3, 16}) {  // with one scale, by eight blocks each
    ExpectSameBits(
        [&](const cuda::Device& on) {
          alone.Poison();
          cuda::SiluMul({.gate_up = device.view().Rows(0, rows), .out = alone.view().Rows(0, rows)},
                        on);
        },
        [&] { return alone.Bytes(); });
  }
  for (int64_t t = 0; t < kRows; ++t) {
    cuda::SiluMul({.gate_up = device.view().Rows(t, 1), .out = alone.view().Rows(t, 1)},
                  TestDevice());
  }
  EXPECT_EQ(alone.Bytes(), out.Bytes());
}

}  // namespace
}  // namespace quire::gpu
