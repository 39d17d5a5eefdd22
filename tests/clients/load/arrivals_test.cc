// The times of open loops: against an independent computation of the same numbers (mt19937_64 and
// the distributions written again in Python), and against the distributions' exact moments.
#include "clients/load/workload/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace quire::load {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ArrivalSettings AtRate(double rate, double burstiness) {
  ArrivalSettings settings;
  settings.request_rate = rate;
  settings.burstiness = burstiness;
  return settings;
}

ArrivalSettings Ramped(Ramp ramp, double start, double end, double burstiness) {
  ArrivalSettings settings;
  settings.ramp = ramp;
  settings.ramp_start_rps = start;
  settings.ramp_end_rps = end;
  settings.burstiness = burstiness;
  return settings;
}

void ExpectNear(const std::vector<int64_t>& times, const std::vector<int64_t>& expected) {
  ASSERT_EQ(times.size(), expected.size());
  for (size_t i = 0; i < times.size(); ++i) EXPECT_NEAR(times[i], expected[i], 2) << i;
}

TEST(ArrivalsTest, PoissonTimesOfASeed) {
  ExpectNear(ArrivalTimes(AtRate(10, 1), 5, 42),
             {5938283, 298150120, 350499018, 430181071, 500000000});
}

TEST(ArrivalsTest, GammaTimesOfASeed) {
  ExpectNear(ArrivalTimes(AtRate(10, 0.25), 5, 42),
             {463658675, 464090360, 493264266, 499852174, 500000000});
}

TEST(ArrivalsTest, ExponentialRampTimesOfASeed) {
  ExpectNear(ArrivalTimes(Ramped(Ramp::kExponential, 5, 20, 1), 5, 42),
             {22561962, 807614542, 907061954, 1014098347, 1080415996});
}

TEST(ArrivalsTest, LinearRampOfEvenGaps) {
  ExpectNear(ArrivalTimes(Ramped(Ramp::kLinear, 5, 20, kInfinity), 5, 0),
             {200000000, 314285714, 394285714, 455824176, 505824176});
}

TEST(ArrivalsTest, AFixedRateIsEvenlySpaced) {
  ExpectNear(ArrivalTimes(AtRate(4, kInfinity), 4, 7),
             {250000000, 500000000, 750000000, 1000000000});
}

TEST(ArrivalsTest, WithoutARateAllAreDueAtOnce) {
  EXPECT_EQ(ArrivalTimes(ArrivalSettings(), 3, 1), std::vector<int64_t>(3, 0));
}

TEST(ArrivalsTest, AnotherSeedIsAnotherSchedule) {
  EXPECT_NE(ArrivalTimes(AtRate(10, 1), 5, 42), ArrivalTimes(AtRate(10, 1), 5, 43));
}

// The gaps' coefficient of variation is 1 / sqrt(shape); N / rate is exact at every shape.
TEST(ArrivalsTest, MomentsOfTheGaps) {
  constexpr int64_t kCount = 200'000;
  for (const double burstiness : {0.25, 0.5, 1.0, 4.0}) {
    const std::vector<int64_t> times = ArrivalTimes(AtRate(100, burstiness), kCount, 5);
    EXPECT_EQ(times.back(), kCount * 10'000'000);
    double sum = 0, squares = 0;
    int64_t before = 0;
    for (const int64_t time : times) {
      const double gap = 1e-9 * static_cast<double>(time - before);
      ASSERT_GE(gap, 0);
      before = time;
      sum += gap;
      squares += gap * gap;
    }
    const double mean = sum / kCount;
    const double variation = std::sqrt(squares / kCount - mean * mean) / mean;
    // The estimate's own deviation is about variation * sqrt((1 + 2 * variation^2) / kCount).
    EXPECT_NEAR(variation, 1 / std::sqrt(burstiness), 0.03 / burstiness) << burstiness;
  }
}

// A Poisson process has as many arrivals in a second as its variance, not only its mean, says.
TEST(ArrivalsTest, PoissonCountsHaveTheirMeanAsVariance) {
  const std::vector<int64_t> times = ArrivalTimes(AtRate(20, 1), 200'000, 9);
  std::vector<double> counts(10'000, 0);
  for (const int64_t time : times) {
    const auto second = static_cast<size_t>(time / 1'000'000'000);
    if (second < counts.size()) ++counts[second];
  }
  double sum = 0, squares = 0;
  for (const double count : counts) {
    sum += count;
    squares += count * count;
  }
  const double mean = sum / 10'000;
  EXPECT_NEAR(mean, 20, 0.2);
  EXPECT_NEAR(squares / 10'000 - mean * mean, 20, 1.5);
}

// N requests of a ramp take the integral of their mean gaps.
TEST(ArrivalsTest, ArrivalsWithinARamp) {
  for (const Ramp ramp : {Ramp::kLinear, Ramp::kExponential}) {
    const ArrivalSettings settings = Ramped(ramp, 10, 100, kInfinity);
    const int64_t count = ArrivalsWithin(settings, 60);
    const std::vector<int64_t> times = ArrivalTimes(settings, count, 0);
    EXPECT_NEAR(1e-9 * static_cast<double>(times.back()), 60, 0.1);
  }
  EXPECT_EQ(ArrivalsWithin(AtRate(3, 1), 10), 30);
  EXPECT_EQ(ArrivalsWithin(AtRate(0.01, 1), 10), 1);
}

TEST(ArrivalsTest, Names) {
  ArrivalSettings closed;
  closed.max_concurrency = 3;
  EXPECT_STREQ(ArrivalName(closed), "closed");
  EXPECT_TRUE(IsClosedLoop(closed));
  EXPECT_STREQ(ArrivalName(ArrivalSettings()), "all at once");
  EXPECT_STREQ(ArrivalName(AtRate(1, 1)), "poisson");
  EXPECT_STREQ(ArrivalName(AtRate(1, 0.5)), "gamma");
  EXPECT_STREQ(ArrivalName(AtRate(1, kInfinity)), "fixed");
  EXPECT_STREQ(ArrivalName(Ramped(Ramp::kLinear, 1, 2, 1)), "ramp");
}

}  // namespace
}  // namespace quire::load
