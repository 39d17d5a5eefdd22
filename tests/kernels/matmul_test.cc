// MatMul against double arithmetic, exact on integers, and the same bits in every batch and on
// every machine.
//
// Covers kernels/cpu/vector/isa.cc, kernels/cpu/vector/vector_avx2.cc,
// kernels/cpu/vector/vector_avx512.cc, kernels/cpu/vector/vector_generic.cc
#include <gtest/gtest.h>

#include "tests/kernels/cases.h"

namespace quire {
namespace {

struct Shape {
  int64_t tokens, k, n;
};

constexpr Shape kShapes[] = {{0, 16, 5},    {1, 0, 3},     {1, 1, 1},    {1, 7, 3},
                             {1, 256, 512}, {2, 33, 17},   {3, 48, 25},  {5, 100, 23},
                             {7, 64, 24},   {8, 129, 26},  {13, 31, 67}, {37, 257, 40},
                             {64, 64, 49},  {131, 80, 101}};

struct Case {
  Array x, w, bias, out;
};

Case MakeCase(const Shape& s, DType dtype, uint64_t seed) {
  Random random(seed);
  return Case{Array::Normal(random, DType::kF32, {s.tokens, s.k}),
              Array::Normal(random, dtype, {s.n, s.k}), Array::Normal(random, dtype, {s.n}),
              Array(DType::kF32, {s.tokens, s.n})};
}

void Product(Backend& backend, Case& c, bool with_bias) {
  c.out.Fill(NAN);
  backend.MatMul({.x = c.x.view(),
                  .w = c.w.view(),
                  .bias = with_bias ? c.bias.view() : TensorView(),
                  .out = c.out.view()});
}

TEST(MatMulTest, MatchesDoubleArithmeticAndIsTheSameOnEveryMachine) {
  for (const Shape& s : kShapes) {
    for (DType dtype : kFloatTypes) {
      Case c = MakeCase(s, dtype, 1 + s.tokens * 1000 + s.k);
      const bool with_bias = s.k % 2 == 1;
      Array first;
      OnEveryMachine([&](Backend& backend, const Machine& machine) {
        SCOPED_TRACE(machine.name() + " " + Name(dtype) + " T=" + std::to_string(s.tokens) +
                     " k=" + std::to_string(s.k) + " n=" + std::to_string(s.n));
        Product(backend, c, with_bias);
        if (first.size() == 0) first = c.out.Copy();
        ASSERT_TRUE(c.out.SameBits(first));
      });
      for (int64_t t = 0; t < s.tokens; ++t) {
        for (int64_t j = 0; j < s.n; ++j) {
          double sum = 0, size = 0;
          for (int64_t i = 0; i < s.k; ++i) {
            const double product = c.x[t * s.k + i] * c.w[j * s.k + i];
            sum += product;
            size += std::abs(product);
          }
          if (with_bias) {
            sum += c.bias[j];
            size += std::abs(c.bias[j]);
          }
          ASSERT_LE(std::abs(first[t * s.n + j] - sum), (SumError(s.k) + kRounding) * size)
              << "at token " << t << " row " << j;
        }
      }
    }
  }
}

// 8-bit elements with scales of rows: the same values in double arithmetic.
TEST(MatMulTest, MultipliesEightBitRowsByTheirScales) {
  for (const Shape& s : kShapes) {
    Random random(77 + s.k);
    Array x = Array::Normal(random, DType::kE4M3, {s.tokens, s.k}, 60.0);
    Array w = Array::Normal(random, DType::kE4M3, {s.n, s.k}, 60.0);
    Array bias = Array::Normal(random, DType::kF32, {s.n});
    Array x_scales(DType::kF32, {s.tokens}), w_scales(DType::kF32, {s.n});
    for (Array* scales : {&x_scales, &w_scales}) {
      for (int64_t i = 0; i < scales->size(); ++i) {
        scales->Set(i, static_cast<float>(0.001 + random.Uniform()));
      }
    }
    TensorView scaled_x = x.view(), scaled_w = w.view();
    scaled_x.scales = x_scales.floats();
    scaled_w.scales = w_scales.floats();
    Array first;
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name());
      Array out(DType::kF32, {s.tokens, s.n});
      out.Fill(NAN);
      backend.MatMul({.x = scaled_x, .w = scaled_w, .bias = bias.view(), .out = out.view()});
      if (first.size() == 0) first = out.Copy();
      ASSERT_TRUE(out.SameBits(first));
    });
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = bias[j], size = std::abs(bias[j]);
        for (int64_t i = 0; i < s.k; ++i) {
          const double product = x_scales[t] * x[t * s.k + i] * w_scales[j] * w[j * s.k + i];
          sum += product;
          size += std::abs(product);
        }
        ASSERT_LE(std::abs(first[t * s.n + j] - sum), (SumError(s.k) + 4 * kRounding) * size)
            << "at token " << t << " row " << j;
      }
    }
  }
}

TEST(MatMulTest, IsExactOnSmallIntegers) {
  const Shape s{19, 211, 53};
  for (DType dtype : kFloatTypes) {
    Case c = MakeCase(s, dtype, 5);
    Random random(6);
    for (int64_t i = 0; i < c.x.size(); ++i) c.x.Set(i, static_cast<float>(random.Below(17) - 8));
    for (int64_t i = 0; i < c.w.size(); ++i) c.w.Set(i, static_cast<float>(random.Below(17) - 8));
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name());
      Product(backend, c, false);
      for (int64_t t = 0; t < s.tokens; ++t) {
        for (int64_t j = 0; j < s.n; ++j) {
          double sum = 0;
          for (int64_t i = 0; i < s.k; ++i) sum += c.x[t * s.k + i] * c.w[j * s.k + i];
          ASSERT_EQ(c.out[t * s.n + j], sum);
        }
      }
    });
  }
}

TEST(MatMulTest, BitsDoNotDependOnTheBatch) {
  const Shape s{37, 300, 77};
  for (DType dtype : kFloatTypes) {
    Case c = MakeCase(s, dtype, 7);
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name());
      Product(backend, c, true);
      const Array together = c.out.Copy();
      for (int64_t begin = 0, count = 1; begin < s.tokens; begin += count, count = count % 5 + 1) {
        count = std::min(count, s.tokens - begin);
        backend.MatMul({.x = c.x.view().Rows(begin, count),
                        .w = c.w.view(),
                        .bias = c.bias.view(),
                        .out = c.out.view().Rows(begin, count)});
      }
      EXPECT_TRUE(c.out.SameBits(together));
    });
  }
}

TEST(MatMulTest, ReadsAndWritesColumnsOfWiderMatrices) {
  Random random(8);
  Array wide_x = Array::Normal(random, DType::kF32, {9, 50});
  Array w = Array::Normal(random, DType::kBF16, {11, 20});
  Array wide_out(DType::kF32, {9, 30});
  OnEveryMachine([&](Backend& backend, const Machine& machine) {
    SCOPED_TRACE(machine.name());
    wide_out.Fill(-7.0f);
    backend.MatMul(
        {.x = wide_x.view().Columns(13, 20), .w = w.view(), .out = wide_out.view().Columns(5, 11)});
    for (int64_t t = 0; t < 9; ++t) {
      for (int64_t j = 0; j < 30; ++j) {
        if (j < 5 || j >= 16) {
          ASSERT_EQ(wide_out[t * 30 + j], -7.0);
          continue;
        }
        double sum = 0;
        for (int64_t i = 0; i < 20; ++i) sum += wide_x[t * 50 + 13 + i] * w[(j - 5) * 20 + i];
        ASSERT_NEAR(wide_out[t * 30 + j], sum, 1e-4);
      }
    }
  });
}

}  // namespace
}  // namespace quire
