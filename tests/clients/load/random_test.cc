// The random numbers: against values from elsewhere, and against their distributions.
#include "clients/load/workload/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace quire::load {
namespace {

// From an independent implementation in Python.
TEST(RandomTest, NumbersOfASeed) {
  EXPECT_EQ(Mix(42, Draw::kPrompt, 7), 13649145833461229182u);
  Random random(42, Draw::kPrompt, 7);
  for (const uint64_t expected : {8235, 586, 14090, 16030, 16060, 12527}) {
    EXPECT_EQ(random.Below(32000), expected);
  }
}

// From Python's statistics.NormalDist.inv_cdf.
TEST(RandomTest, NormalQuantiles) {
  EXPECT_DOUBLE_EQ(NormalQuantile(0.5), 0);
  EXPECT_NEAR(NormalQuantile(0.3), -0.5244005127080407, 1e-15);
  EXPECT_NEAR(NormalQuantile(0.975), 1.9599639845400539, 1e-14);
  EXPECT_NEAR(NormalQuantile(0.001), -3.090232306167813, 1e-14);
  EXPECT_NEAR(NormalQuantile(1e-15), -7.941345326170995, 1e-14);
}

// By the definition of the normal distribution function.
TEST(RandomTest, QuantilesInvertTheDistributionFunction) {
  for (double p = 0.0005; p < 1; p += 0.0005) {
    EXPECT_NEAR(0.5 * std::erfc(-NormalQuantile(p) / std::sqrt(2.0)), p, 1e-14);
  }
}

// Kolmogorov's distance of a sample of n from its distribution passes 1.95 / sqrt(n) once in a
// thousand seeds; these seeds are fixed.
template <typename Distribution>
double Distance(std::vector<double> sample, Distribution distribution) {
  std::sort(sample.begin(), sample.end());
  double worst = 0;
  for (size_t i = 0; i < sample.size(); ++i) {
    const double p = distribution(sample[i]);
    const double n = static_cast<double>(sample.size());
    worst = std::max({worst, std::abs(p - static_cast<double>(i) / n),
                      std::abs(p - static_cast<double>(i + 1) / n)});
  }
  return worst;
}

template <typename DrawOne>
std::vector<double> Sample(DrawOne draw) {
  Random random(3, Draw::kTraits, 0);
  std::vector<double> sample(20'000);
  for (double& value : sample) value = draw(random);
  return sample;
}

TEST(RandomTest, DrawsFollowTheirDistributions) {
  const double limit = 1.95 / std::sqrt(20'000.0);
  EXPECT_LT(Distance(Sample([](Random& r) { return r.Uniform(); }), [](double x) { return x; }),
            limit);
  EXPECT_LT(Distance(Sample([](Random& r) { return r.Exponential(); }),
                     [](double x) { return 1 - std::exp(-x); }),
            limit);
  EXPECT_LT(Distance(Sample([](Random& r) { return r.Normal(); }),
                     [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }),
            limit);
  // Of shape 1/2 it is half a squared normal variable, of shape 2 the sum of two exponential ones.
  EXPECT_LT(Distance(Sample([](Random& r) { return r.Gamma(0.5); }),
                     [](double x) { return std::erf(std::sqrt(x)); }),
            limit);
  EXPECT_LT(Distance(Sample([](Random& r) { return r.Gamma(2); }),
                     [](double x) { return 1 - std::exp(-x) * (1 + x); }),
            limit);
}

TEST(RandomTest, LengthsStayWithinTheirSpecs) {
  Random random(1, Draw::kLengths, 0);
  const LengthSpec fixed{LengthSpec::Kind::kFixed, 17, 0};
  const LengthSpec uniform{LengthSpec::Kind::kUniform, 3, 6};
  const LengthSpec normal{LengthSpec::Kind::kNormal, 100, 50};
  std::vector<int> counts(7, 0);
  double sum = 0;
  for (int i = 0; i < 4000; ++i) {
    EXPECT_EQ(random.Length(fixed, 1), 17);
    const int32_t value = random.Length(uniform, 1);
    ASSERT_GE(value, 3);
    ASSERT_LE(value, 6);
    ++counts[static_cast<size_t>(value)];
    const int32_t cut = random.Length(normal, 1);
    ASSERT_GE(cut, 1);
    sum += cut;
  }
  for (size_t value = 3; value <= 6; ++value) EXPECT_NEAR(counts[value], 1000, 120);
  EXPECT_NEAR(sum / 4000, 100, 4);  // the cut at 1 moves the mean by 0.4
}

}  // namespace
}  // namespace quire::load
