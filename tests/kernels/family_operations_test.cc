// LayerNorm, AddScaled, Scale and Gelu against double arithmetic, the same bits on every machine.
// Covers kernels/cpu/layer_norm.cc, kernels/cpu/scale.cc, kernels/cpu/gelu.cc
#include "kernels/family_operations.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/kernels/cases.h"

namespace quire {
namespace {

// The result of `run` on a copy of `in`, which has to be the same on every machine.
Array OnAll(const Array& in, const std::function<void(Backend&, TensorView)>& run) {
  Array first;
  OnEveryMachine([&](Backend& backend, const Machine& machine) {
    SCOPED_TRACE(machine.name());
    Array out = in.Copy();
    run(backend, out.view());
    if (first.size() == 0) first = out.Copy();
    EXPECT_TRUE(out.SameBits(first));
  });
  return first;
}

struct NormCase {
  int64_t tokens, width;
  int32_t groups;
  bool shared_weight;  // one run's weights serve every run
  DType dtype;
  bool with_bias;
};

void CheckLayerNorm(const NormCase& c) {
  Random random(c.tokens * 1000 + c.width);
  const int64_t run = c.width / c.groups, weights = c.shared_weight ? run : c.width;
  Array x = Array::Normal(random, DType::kF32, {c.tokens, c.width}, 3.0);
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<float>(x[i] + 1.5));
  Array weight = Array::Normal(random, c.dtype, {weights});
  Array bias = Array::Normal(random, c.dtype, {weights});
  const float eps = 1e-5f;
  const Array out = OnAll(x, [&](Backend& backend, TensorView view) {
    backend.LayerNorm({.x = view,
                       .groups = c.groups,
                       .weight = weight.view(),
                       .bias = c.with_bias ? bias.view() : TensorView(),
                       .eps = eps,
                       .out = view});
  });
  for (int64_t begin = 0; begin < x.size(); begin += run) {
    double mean = 0, variance = 0, largest = 0;
    for (int64_t i = 0; i < run; ++i) mean += x[begin + i] / static_cast<double>(run);
    for (int64_t i = 0; i < run; ++i) {
      variance += std::pow(x[begin + i] - mean, 2) / static_cast<double>(run);
      largest = std::max(largest, std::abs(x[begin + i]));
    }
    const double factor = 1 / std::sqrt(variance + eps);
    // The mean's rounding is absolute, of the size of the largest element.
    const double error = (SumError(run) + 8 * kRounding) * (largest * factor + 1);
    for (int64_t i = 0; i < run; ++i) {
      const int64_t w = c.shared_weight ? i : (begin + i) % c.width;
      const double b = c.with_bias ? bias[w] : 0;
      const double expected = (x[begin + i] - mean) * factor * weight[w] + b;
      ASSERT_NEAR(out[begin + i], expected, 2 * error * (std::abs(weight[w]) + std::abs(b)));
    }
  }
}

TEST(LayerNormTest, MatchesDoubleArithmeticInPlace) {
  for (int64_t tokens : {0, 1, 19}) {
    for (int64_t width : {6, 48, 96, 1026}) {
      for (DType dtype : kFloatTypes) {
        for (bool with_bias : {false, true}) {
          CheckLayerNorm({tokens, width, 1, false, dtype, with_bias});
          CheckLayerNorm({tokens, width, 3, false, dtype, with_bias});
          CheckLayerNorm({tokens, width, 3, true, dtype, with_bias});
        }
      }
    }
  }
}

TEST(AddScaledTest, RoundsTheProductAndThenTheSum) {
  Random random(1);
  Array x = Array::Normal(random, DType::kF32, {9, 77});
  const Array before = Array::Normal(random, DType::kF32, {9, 77});
  const Array out = OnAll(before, [&](Backend& backend, TensorView view) {
    backend.AddScaled({.x = x.view(), .scale = 0.22f, .out = view});
  });
  for (int64_t i = 0; i < out.size(); ++i) {
    const float product = x.floats()[i] * 0.22f;
    ASSERT_EQ(out.floats()[i], before.floats()[i] + product);
  }
}

TEST(ScaleTest, MultipliesAndCaps) {
  for (const float cap : {0.0f, 30.0f, 0.5f}) {
    Random random(2);
    Array x = Array::Normal(random, DType::kF32, {5, 131}, 40.0);
    const float extremes[] = {-1e30f, -300.0f, -0.0f, 1e-30f, 1e-3f, 240.0f, 1e30f};
    for (int64_t i = 0; i < 7; ++i) x.Set(i, extremes[i]);
    const Array out = OnAll(x, [&](Backend& backend, TensorView view) {
      backend.Scale({.x = view, .factor = 0.3f, .cap = cap});
    });
    for (int64_t i = 0; i < out.size(); ++i) {
      const double scaled = double{x.floats()[i] * 0.3f};
      const double expected = cap > 0 ? cap * std::tanh(scaled / cap) : scaled;
      ASSERT_NEAR(out[i], expected, (cap > 0 ? 8 : 0) * kRounding * std::abs(expected)) << x[i];
    }
  }
}

TEST(GeluTest, MatchesDoubleArithmeticWithAndWithoutAGate) {
  for (const bool gated : {false, true}) {
    for (int64_t width : {1, 16, 33, 700}) {
      Random random(width);
      Array x = Array::Normal(random, DType::kF32, {5, (gated ? 2 : 1) * width}, 3.0);
      const float extremes[] = {-1e15f, -12.0f, -5.0f, -0.0f, 1e-30f, 9.5f, 1e15f};
      for (int64_t i = 0; i < std::min<int64_t>(width, 7); ++i) x.Set(i, extremes[i]);
      Array result(DType::kF32, {5, width});
      const Array out = OnAll(result, [&](Backend& backend, TensorView view) {
        backend.Gelu({.x = x.view(), .gated = gated, .out = view});
      });
      for (int64_t t = 0; t < 5; ++t) {
        for (int64_t i = 0; i < width; ++i) {
          const int64_t at = t * (gated ? 2 : 1) * width + i;
          const double v = x[at], up = gated ? x[at + width] : 1;
          const double u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
          const double expected = v / (1 + std::exp(-2 * u)) * up;
          // The exponent's rounding is relative, so the error grows with it: up to 88 of them.
          const double error = (8 + 4 * std::min(std::abs(2 * u), 88.0)) * kRounding;
          ASSERT_NEAR(out[t * width + i], expected, error * std::abs(expected) + 1e-21) << v;
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire
