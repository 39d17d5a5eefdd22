// MatMul of 8-bit elements whose blocks of columns have scales of their own: the same values in
// double arithmetic, and the same bits on every machine and in every batch.
#include <gtest/gtest.h>

#include "kernels/ceil_div.h"
#include "kernels/row_scale.h"
#include "tests/kernels/cases.h"

namespace quire {
namespace {

struct Shape {
  int64_t tokens, n, k;
  int32_t scale_rows;  // of w
};

// Ragged blocks of columns and of rows, rows that share a scale with few others, and one of each.
constexpr Shape kShapes[] = {{1, 128, 128, 128}, {1, 1, 1, 1},        {3, 130, 272, 128},
                             {9, 77, 144, 16},   {17, 300, 1000, 32}, {70, 53, 129, 1}};

// A matrix whose scales are those of blocks.
struct Blocks {
  Array elements, scales;
  int32_t rows;  // that share a scale
  int64_t columns;

  Blocks(Random& random, int64_t height, int64_t width, int32_t scale_rows)
      : elements(Array::Normal(random, DType::kE4M3, {height, width}, 60.0)),
        scales(DType::kF32,
               {CeilDiv<int64_t>(width, kScaleRun), CeilDiv<int64_t>(height, scale_rows) + 3}),
        rows(scale_rows),
        columns(width) {
    for (int64_t i = 0; i < scales.size(); ++i) {
      scales.Set(i, static_cast<float>(0.001 + random.Uniform()));
    }
  }

  TensorView view() {
    TensorView v = elements.view();
    v.scales = scales.floats();
    v.scale_rows = rows;
    v.scale_columns = kScaleRun;
    v.scale_stride = scales.view().dim[1];
    return v;
  }
  double At(int64_t r, int64_t c) {
    return elements[r * columns + c] * scales[c / kScaleRun * scales.view().dim[1] + r / rows];
  }
};

TEST(EightBitMatMulTest, MultipliesBlocksByTheirScales) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(s.k);
    Random random(static_cast<uint64_t>(s.k + s.n));
    Blocks x(random, s.tokens, s.k, 1), w(random, s.n, s.k, s.scale_rows);
    Array bias = Array::Normal(random, DType::kF32, {s.n}), first;
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name());
      Array out(DType::kF32, {s.tokens, s.n}), alone(DType::kF32, {s.tokens, s.n});
      out.Fill(NAN);
      backend.MatMul({.x = x.view(), .w = w.view(), .bias = bias.view(), .out = out.view()});
      if (first.size() == 0) first = out.Copy();
      ASSERT_TRUE(out.SameBits(first));
      for (int64_t t = 0; t < s.tokens; ++t) {
        backend.MatMul({.x = x.view().Rows(t, 1),
                        .w = w.view(),
                        .bias = bias.view(),
                        .out = alone.view().Rows(t, 1)});
      }
      ASSERT_TRUE(alone.SameBits(first));
    });
    for (int64_t t = 0; t < s.tokens; ++t) {
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = bias[j], size = std::abs(bias[j]);
        for (int64_t i = 0; i < s.k; ++i) {
          const double product = x.At(t, i) * w.At(j, i);
          sum += product;
          size += std::abs(product);
        }
        // Within a block, two scales, a rounding for each block that is added, and the bias.
        const double blocks = static_cast<double>(CeilDiv<int64_t>(s.k, kScaleRun));
        ASSERT_LE(std::abs(first[t * s.n + j] - sum),
                  (SumError(kScaleRun) + (blocks + 3) * kRounding) * size)
            << "at token " << t << " row " << j;
      }
    }
  }
}

// Sums of integers are exact in any order, of the largest ones too, so that the product is one of
// three factors.
TEST(EightBitMatMulTest, SumsIntegersExactly) {
  for (const int64_t k : {1, 16, 1024, 1025, 5000}) {
    constexpr int64_t kTokens = 5, kRows = 37;
    SCOPED_TRACE(k);
    Random random(static_cast<uint64_t>(k));
    Array x(DType::kI8, {kTokens, k}), w(DType::kI8, {kRows, k});
    Array x_scales = Array::Normal(random, DType::kF32, {kTokens});
    Array w_scales = Array::Normal(random, DType::kF32, {kRows});
    for (Array* a : {&x, &w}) {
      for (int64_t i = 0; i < a->size(); ++i) {
        const bool largest = i / k == 1;  // of one row of each
        a->Set(i, static_cast<float>(largest ? (a == &w ? -128 : 127) : random.Below(255) - 127));
      }
    }
    OnEveryMachine([&](Backend& backend, const Machine& machine) {
      SCOPED_TRACE(machine.name());
      TensorView of_x = x.view(), of_w = w.view();
      of_x.scales = x_scales.floats();
      of_w.scales = w_scales.floats();
      Array out(DType::kF32, {kTokens, kRows});
      out.Fill(NAN);
      backend.MatMul({.x = of_x, .w = of_w, .bias = {}, .out = out.view()});
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t j = 0; j < kRows; ++j) {
          int64_t sum = 0;
          for (int64_t i = 0; i < k; ++i) {
            sum += static_cast<int64_t>(x[t * k + i]) * static_cast<int64_t>(w[j * k + i]);
          }
          const double exact = static_cast<double>(sum) * x_scales[t] * w_scales[j];
          ASSERT_NEAR(out[t * kRows + j], exact, 4 * kRounding * std::abs(exact)) << t << " " << j;
        }
      }
    });
  }
}

}  // namespace
}  // namespace quire
