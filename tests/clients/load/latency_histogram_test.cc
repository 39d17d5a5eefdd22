// Tests of LatencyHistogram against numpy: expected values are numpy's for the samples named.
#include "clients/load/values/latency_histogram.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quire::load {
namespace {

constexpr double kShare = 1.0000001 / 2048;  // the relative error promised, and rounding

TEST(LatencyHistogramTest, IsAllZeroWhenEmpty) {
  const LatencyHistogram h;
  EXPECT_EQ(h.count(), 0);
  EXPECT_EQ(h.mean(), 0);
  EXPECT_EQ(h.min(), 0);
  EXPECT_EQ(h.max(), 0);
  EXPECT_EQ(h.stddev(), 0);
  EXPECT_EQ(h.Percentile(50), 0);
}

// x = 1e-3 * 1.01 ** numpy.arange(1000): 1 ms to 20.8 s.
LatencyHistogram Geometric(int from, int to) {
  LatencyHistogram h;
  for (int i = from; i < to; ++i) h.Add(1e-3 * std::pow(1.01, i));
  return h;
}

void ExpectGeometric(const LatencyHistogram& h) {
  EXPECT_EQ(h.count(), 1000);
  EXPECT_NEAR(h.mean(), 2.0958155637813825, 1e-12);
  EXPECT_NEAR(h.stddev(), 4.178826647514833, 1e-12);
  EXPECT_DOUBLE_EQ(h.min(), 0.001);
  EXPECT_DOUBLE_EQ(h.max(), 20.75163924536024);
  EXPECT_DOUBLE_EQ(h.Percentile(0), 0.001);
  EXPECT_DOUBLE_EQ(h.Percentile(100), 20.75163924536024);
  const double percents[] = {1, 10, 50, 90, 99, 99.9};
  const double values[] = {0.0011045127568839362, 0.0027021357959270517, 0.1440560755393434,
                           7.6797858169218784,    18.7880669161493,      20.54638293242843};
  for (int i = 0; i < 6; ++i) {
    EXPECT_NEAR(h.Percentile(percents[i]), values[i], values[i] * kShare) << percents[i];
  }
}

TEST(LatencyHistogramTest, AgreesWithNumpyOverFourDecades) { ExpectGeometric(Geometric(0, 1000)); }

TEST(LatencyHistogramTest, MergedPartsEqualTheWhole) {
  LatencyHistogram whole;
  whole.Merge(LatencyHistogram());
  whole.Merge(Geometric(300, 1000));
  whole.Merge(Geometric(0, 300));
  whole.Merge(LatencyHistogram());
  ExpectGeometric(whole);
}

// x = [0.010] * 3 + [0.020] * 5 + [0.040] * 2. Position of p25: 2.25, a quarter of the way from the
// third value (0.010) to the fourth (0.020).
TEST(LatencyHistogramTest, InterpolatesBetweenOrderStatistics) {
  LatencyHistogram h;
  h.Add(0.020, 5);
  h.Add(0.010, 3);
  h.Add(0.040, 2);
  h.Add(0.5, 0);
  EXPECT_EQ(h.count(), 10);
  EXPECT_DOUBLE_EQ(h.mean(), 0.021);
  EXPECT_NEAR(h.stddev(), 0.01044030650891055, 1e-15);
  EXPECT_NEAR(h.Percentile(25), 0.0125, 0.0125 * kShare);
  EXPECT_NEAR(h.Percentile(50), 0.020, 0.020 * kShare);
  EXPECT_NEAR(h.Percentile(77.5), 0.020, 0.020 * kShare);
  EXPECT_NEAR(h.Percentile(99), 0.040, 0.040 * kShare);
}

TEST(LatencyHistogramTest, EqualValuesAreExact) {
  LatencyHistogram h;
  h.Add(0.0123, 1000000);
  for (double p : {0.0, 50.0, 99.9, 100.0}) EXPECT_DOUBLE_EQ(h.Percentile(p), 0.0123) << p;
  EXPECT_DOUBLE_EQ(h.mean(), 0.0123);
  EXPECT_EQ(h.stddev(), 0);
}

// numpy.std(0.01 + 1e-9 * numpy.arange(5)); sums of squares would be left with no digit of it.
TEST(LatencyHistogramTest, KeepsTheSpreadOfNearlyEqualValues) {
  LatencyHistogram h;
  for (int i = 0; i < 5; ++i) h.Add(0.01 + 1e-9 * i);
  EXPECT_NEAR(h.stddev(), 1.4142135623646963e-09, 1e-14);
}

TEST(LatencyHistogramTest, EveryMagnitudeKeepsItsShare) {
  for (double seconds = 1e-9; seconds < 8796; seconds *= 1.00037) {
    LatencyHistogram h;
    h.Add(seconds * 0.5);  // so that neither end of the range is asked for below
    h.Add(seconds);
    h.Add(seconds * 2);
    if (seconds * 2 > 8796) break;
    EXPECT_NEAR(h.Percentile(50), seconds, seconds * kShare);
    if (seconds > 1e-6) seconds *= 1.1;  // each histogram costs a third of a megabyte
  }
}

TEST(LatencyHistogramTest, ClampsWhatIsOutOfRange) {
  LatencyHistogram h;
  h.Add(-5);
  h.Add(std::nan(""));
  h.Add(0);
  h.Add(1e6);
  EXPECT_EQ(h.count(), 4);
  EXPECT_EQ(h.min(), 0);
  EXPECT_EQ(h.Percentile(50), 0);
  EXPECT_NEAR(h.max(), 8796.093, 0.001);  // 2^43 ns
  EXPECT_DOUBLE_EQ(h.Percentile(100), h.max());
}

}  // namespace
}  // namespace quire::load
