// 8-bit elements: the conversion against a search among all values in double arithmetic, and the
// operations that write rows of them.
//
// Covers kernels/row_scale.h
#include <gtest/gtest.h>

#include <limits>

#include "kernels/ceil_div.h"
#include "kernels/row_scale.h"
#include "tests/kernels/cases.h"

namespace quire {
namespace {

// The value of an element from its fields: sign, exponent with a bias of 7, three bits of fraction.
double ValueOf(int bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  const double size =
      exponent == 0 ? fraction * 0x1p-9 : std::ldexp(8 + fraction, exponent - 7 - 3);
  return bits & 0x80 ? -size : size;
}

// The element nearest to x; of two, the even one. NaN has none.
int Nearest(double x) {
  int best = 0;
  for (int bits = 0; bits < 0x7f; ++bits) {
    const double distance = std::abs(std::abs(x) - ValueOf(bits));
    const double least = std::abs(std::abs(x) - ValueOf(best));
    if (distance < least || (distance == least && bits % 2 == 0)) best = bits;
  }
  return std::signbit(x) ? best | 0x80 : best;
}

TEST(E4M3Test, EveryElementHasItsValueAndComesBack) {
  for (int bits = 0; bits < 256; ++bits) {
    const E4M3 element{static_cast<uint8_t>(bits)};
    if ((bits & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(ToFloat(element)));
      continue;
    }
    EXPECT_EQ(static_cast<double>(ToFloat(element)), ValueOf(bits)) << bits;
    EXPECT_EQ(FromFloat<E4M3>(ToFloat(element)).bits, bits);
  }
  EXPECT_EQ(FromFloat<E4M3>(std::numeric_limits<float>::quiet_NaN()).bits & 0x7f, 0x7f);
}

TEST(E4M3Test, RoundsToTheNearestElementAndSaturates) {
  Random random(1);
  for (int i = 0; i < 200000; ++i) {
    const double size = std::ldexp(1 + random.Uniform(), static_cast<int>(random.Below(24)) - 13);
    const auto x = static_cast<float>(i % 2 == 0 ? size : -size);
    ASSERT_EQ(FromFloat<E4M3>(x).bits, Nearest(x)) << x;
  }
  // Halfway between two elements, and the floats beside that.
  for (int bits = 0; bits < 0x7e; ++bits) {
    const auto middle = static_cast<float>((ValueOf(bits) + ValueOf(bits + 1)) / 2);
    for (float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      ASSERT_EQ(FromFloat<E4M3>(x).bits, Nearest(x)) << x;
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (float x : {448.0f, 463.9f, 464.0f, 480.0f, 1e30f, infinity}) {
    EXPECT_EQ(FromFloat<E4M3>(x).bits, 0x7e) << x;
    EXPECT_EQ(FromFloat<E4M3>(-x).bits, 0xfe) << x;
  }
  for (float x : {0.0f, 1e-40f, 0x1p-11f}) EXPECT_EQ(FromFloat<E4M3>(x).bits, 0) << x;
}

TEST(I8Test, RoundsToTheNearestIntegerAndSaturates) {
  Random random(2);
  for (int i = 0; i < 100000; ++i) {
    const auto x = static_cast<float>((random.Uniform() - 0.5) * 300);
    const double nearest = std::nearbyint(std::min(std::max<double>(x, -128), 127.0));
    ASSERT_EQ(FromFloat<I8>(x).value, nearest) << x;
  }
  for (int half = -257; half <= 254; ++half) {  // ties go to the even one
    const float x = static_cast<float>(half) / 2;
    ASSERT_EQ(FromFloat<I8>(x).value, std::max(-128.0f, std::nearbyint(x))) << x;
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(FromFloat<I8>(infinity).value, 127);
  EXPECT_EQ(FromFloat<I8>(-infinity).value, -128);
  EXPECT_EQ(FromFloat<I8>(NAN).value, 0);
  for (int x = -128; x < 128; ++x) EXPECT_EQ(ToFloat(I8{static_cast<int8_t>(x)}), x);
}

// A matrix of 8-bit rows with their scales.
struct EightBit {
  Array elements, scales;

  EightBit(int64_t rows, int64_t width, DType dtype = DType::kE4M3)
      : elements(dtype, {rows, width}), scales(DType::kF32, {rows}) {}
  TensorView view() {
    TensorView v = elements.view();
    v.scales = scales.floats();
    return v;
  }
};

// Compares with the largest element of each row in double arithmetic.
void ExpectQuantized(const Array& floats, const EightBit& got, int64_t rows, int64_t width) {
  for (int64_t t = 0; t < rows; ++t) {
    double largest = 0;
    for (int64_t i = 0; i < width; ++i)
      largest = std::max(largest, std::abs(floats[t * width + i]));
    const double scale = got.scales[t];
    if (largest > 0x1p-90) {
      ASSERT_NEAR(scale, largest / 448, 2 * kRounding * scale);
    }
    for (int64_t i = 0; i < width; ++i) {
      // Half a step of the element, or of the smallest.
      const double x = floats[t * width + i], value = got.elements[t * width + i] * scale;
      ASSERT_LE(std::abs(value - x), (0x1p-4 + 1e-5) * std::abs(x) + scale * 0x1p-10)
          << "row " << t << " of " << width << " at " << i;
    }
  }
}

TEST(QuantizeTest, ScalesEachRowByItsLargestElement) {
  for (int64_t width : {1, 15, 64, 700}) {
    Random random(width);
    Array x = Array::Normal(random, DType::kF32, {5, width}, 3.0);
    for (int64_t i = 0; i < width; ++i) {
      x.Set(width + i, 0.0f);                                              // a row of zeros
      x.Set(2 * width + i, static_cast<float>(x[2 * width + i] * 1e30));   // large
      x.Set(3 * width + i, static_cast<float>(x[3 * width + i] * 1e-25));  // small
    }
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name());
      EightBit out(5, width);
      backend.Quantize({.x = x.view(), .out = out.view()});
      ExpectQuantized(x, out, 5, width);
      for (int64_t i = 0; i < width; ++i) EXPECT_EQ(out.elements[width + i], 0.0);
    });
  }
}

TEST(QuantizeTest, IntegersAreTheNearestOfTheirRow) {
  for (int64_t width : {1, 15, 64, 700}) {
    Random random(width);
    Array x = Array::Normal(random, DType::kF32, {4, width}, 3.0);
    for (int64_t i = 0; i < width; ++i) x.Set(width + i, 0.0f);
    x.Set(2 * width, NAN);
    x.Set(3 * width, -INFINITY);
    OnEveryMachine([&](Backend& backend, const Machine&) {
      EightBit out(4, width, DType::kI8);
      backend.Quantize({.x = x.view(), .out = out.view()});
      double largest = 0;
      for (int64_t i = 0; i < width; ++i) largest = std::max(largest, std::abs(x[i]));
      const double scale = out.scales[0];
      EXPECT_NEAR(scale, largest / 127, 2 * kRounding * scale);
      for (int64_t i = 0; i < width; ++i) {
        ASSERT_LE(std::abs(out.elements[i] * scale - x[i]), scale * (0.5 + 1e-5)) << i;
        ASSERT_EQ(out.elements[width + i], 0.0);
      }
      // A NaN shows in every product of its row.
      EXPECT_TRUE(std::isnan(out.scales[2]));
      EXPECT_TRUE(std::isinf(out.scales[3]));
    });
  }
}

// A run with a scale of its own is what it would be as a row.
TEST(QuantizeTest, RunsOfARowAreRowsOfTheirOwn) {
  constexpr int64_t kRows = 5, kStride = 9;
  for (int64_t width : {1, 127, 128, 129, 256, 400}) {
    const int64_t runs = CeilDiv<int64_t>(width, kScaleRun);
    Random random(width);
    Array x = Array::Normal(random, DType::kF32, {kRows, width}, 3.0);
    for (int64_t i = 0; i < std::min<int64_t>(width, kScaleRun); ++i) x.Set(width + i, 0.0f);
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name());
      Array elements(DType::kE4M3, {kRows, width}), scales(DType::kF32, {runs, kStride});
      TensorView out = elements.view();
      out.scales = scales.floats();
      out.scale_columns = kScaleRun;
      out.scale_stride = kStride;
      backend.Quantize({.x = x.view(), .out = out});
      for (int64_t run = 0; run < runs; ++run) {
        const int64_t begin = run * kScaleRun, count = std::min<int64_t>(kScaleRun, width - begin);
        Array part(DType::kF32, {kRows, count});
        for (int64_t i = 0; i < part.size(); ++i) {
          part.Set(i, static_cast<float>(x[i / count * width + begin + i % count]));
        }
        EightBit row(kRows, count);
        backend.Quantize({.x = part.view(), .out = row.view()});
        for (int64_t i = 0; i < part.size(); ++i) {
          ASSERT_EQ(elements[i / count * width + begin + i % count], row.elements[i]);
        }
        for (int64_t t = 0; t < kRows; ++t) ASSERT_EQ(scales[run * kStride + t], row.scales[t]);
      }
      for (int64_t run = 0; run < runs; ++run) {
        for (int64_t t = kRows; t < kStride; ++t) ASSERT_EQ(scales[run * kStride + t], 0.0);
      }
    });
  }
}

TEST(QuantizeTest, KeepsNaN) {
  Array x(DType::kF32, {1, 4});
  x.Fill(2.0f);
  x.Set(1, NAN);
  OnEveryMachine([&](Backend& backend, const Machine&) {
    EightBit out(1, 4);
    backend.Quantize({.x = x.view(), .out = out.view()});
    EXPECT_TRUE(std::isnan(out.elements[1]));
    EXPECT_EQ(out.elements[0], 448.0);
  });
}

// Every operation that writes a product's input: 8-bit rows are those of its floats.
TEST(QuantizeTest, OperationsWriteWhatQuantizeWouldMakeOfTheirFloats) {
  constexpr int64_t kRows = 7, kWidth = 96;
  Random random(9);
  Array x = Array::Normal(random, DType::kF32, {kRows, kWidth});
  Array two = Array::Normal(random, DType::kF32, {kRows, 2 * kWidth});
  Array weight = Array::Normal(random, DType::kBF16, {kWidth});
  OnEveryMachine([&](Backend& backend, const Machine& machine) {
    SCOPED_TRACE(machine.name());
    const auto compare = [&](auto operation) {
      Array floats(DType::kF32, {kRows, kWidth});
      EightBit direct(kRows, kWidth), after(kRows, kWidth);
      operation(floats.view());
      operation(direct.view());
      backend.Quantize({.x = floats.view(), .out = after.view()});
      EXPECT_TRUE(direct.elements.SameBits(after.elements));
      EXPECT_TRUE(direct.scales.SameBits(after.scales));
      EightBit integers(kRows, kWidth, DType::kI8), later(kRows, kWidth, DType::kI8);
      operation(integers.view());
      backend.Quantize({.x = floats.view(), .out = later.view()});
      EXPECT_TRUE(integers.elements.SameBits(later.elements));
      EXPECT_TRUE(integers.scales.SameBits(later.scales));
    };
    compare([&](TensorView out) {
      backend.RmsNorm(
          {.x = x.view(), .residual = {}, .weight = weight.view(), .eps = 1e-5f, .out = out});
    });
    compare([&](TensorView out) { backend.SiluMul({.gate_up = two.view(), .out = out}); });
    compare([&](TensorView out) { backend.Gelu({.x = two.view(), .gated = true, .out = out}); });
    compare([&](TensorView out) { backend.Gelu({.x = x.view(), .gated = false, .out = out}); });
  });
}

}  // namespace
}  // namespace quire
