// Figures of the last ten minutes: quantiles from buckets, rates between two moments, and the ring.
// Covers server/metrics/latency_sketch.cc
#include "server/metrics/history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "server/metrics/latency_sketch.h"

namespace quire {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

double SeriesValue(const HistorySecond& second, const std::string& name) {
  for (const HistorySeries& series : AllHistorySeries()) {
    if (series.name == name) return series.value(second);
  }
  ADD_FAILURE() << "no series " << name;
  return 0;
}

TEST(LatencySketchTest, QuantilesAreWithinFivePercent) {
  LatencySketch sketch;
  for (int ms = 1; ms <= 1000; ++ms) sketch.Observe(ms * 1e-3);
  const Quantiles quantiles = QuantilesOf(sketch.Read());
  EXPECT_NEAR(quantiles.p50, .5, .5 * .05);
  EXPECT_NEAR(quantiles.p90, .9, .9 * .05);
  EXPECT_NEAR(quantiles.p99, .99, .99 * .05);
}

TEST(LatencySketchTest, DurationsBeyondTheEndsCountInTheOutermostBuckets) {
  LatencySketch sketch;
  EXPECT_EQ(QuantilesOf(sketch.Read()).p50, -1);
  for (const double seconds : {-1.0, 0.0, 1e-9}) sketch.Observe(seconds);
  EXPECT_LT(QuantilesOf(sketch.Read()).p99, 20e-6);
  for (int i = 0; i < 1000; ++i) sketch.Observe(1e9);
  EXPECT_GT(QuantilesOf(sketch.Read()).p99, 3600);
}

TEST(LatencySketchTest, TheDifferenceOfTwoReadsHasTheDurationsBetween) {
  LatencySketch sketch;
  sketch.Observe(1);
  const LatencySketch::Counts before = sketch.Read();
  sketch.Observe(.01);
  EXPECT_NEAR(QuantilesOf(Difference(sketch.Read(), before)).p99, .01, .01 * .05);
}

class HistoryTest : public testing::Test {
 protected:
  // Adds a second that lasts so long.
  void Add(double seconds = 1) {
    now_ns_ += static_cast<int64_t>(seconds * kSecond);
    history_.Add(stats_, first_token_, inter_token_, now_ns_);
  }

  EngineStats stats_;
  LatencySketch first_token_, inter_token_;
  History history_;
  int64_t now_ns_ = 100 * kSecond;
};

TEST_F(HistoryTest, RatesAreDifferencesOverTheTimeBetween) {
  stats_.generated_tokens = 1000;
  stats_.steps = 10;
  stats_.steps_ns = 77;
  stats_.graphs = {{.size = 8, .replays = 5, .padded_rows = 10}};
  Add();
  EXPECT_TRUE(history_.All().empty());  // nothing to compare with
  EXPECT_EQ(history_.Last().number, 0);
  stats_.generated_tokens += 300;
  stats_.prompt_tokens += 50;
  stats_.tiering.stored_bytes += 4096;
  stats_.steps += 20;
  stats_.steps_ns += 40'000'000;
  stats_.graphs[0].replays += 15;
  stats_.graphs[0].padded_rows += 30;
  stats_.load = {
      .running = 3, .waiting = 2, .free_blocks = 70, .cached_blocks = 20, .total_blocks = 100};
  stats_.cache.host_pages_used = 9;
  stats_.cache.sessions_by_state[static_cast<size_t>(SessionState::kHost)] = 4;
  Add(2);
  const HistorySecond second = history_.Last();
  EXPECT_EQ(second.number, 1);
  EXPECT_DOUBLE_EQ(second.generated_tokens_per_second, 150);
  EXPECT_DOUBLE_EQ(second.prompt_tokens_per_second, 25);
  EXPECT_DOUBLE_EQ(second.stored_bytes_per_second, 2048);
  EXPECT_DOUBLE_EQ(second.loaded_bytes_per_second, 0);
  EXPECT_DOUBLE_EQ(second.steps_per_second, 10);
  EXPECT_DOUBLE_EQ(SeriesValue(second, "step_mean_ms"), 2);
  EXPECT_DOUBLE_EQ(second.graph_ratio, .75);
  EXPECT_DOUBLE_EQ(second.padded_ratio, .25);
  EXPECT_EQ(second.used_blocks, 30);
  EXPECT_EQ(second.cached_blocks, 20);
  EXPECT_EQ(second.used_pages, 9);
  EXPECT_EQ(SeriesValue(second, "sessions_host"), 4);
  EXPECT_EQ(SeriesValue(second, "requests_running"), 3);
}

TEST_F(HistoryTest, AnIdleSecondHasNoLatencyAndNoStepTime) {
  Add();
  Add();
  const HistorySecond second = history_.Last();
  EXPECT_LT(SeriesValue(second, "first_token_p50_ms"), 0);
  EXPECT_LT(SeriesValue(second, "step_mean_ms"), 0);
  EXPECT_EQ(second.generated_tokens_per_second, 0);
}

TEST_F(HistoryTest, LatenciesCoverFiveSeconds) {
  Add();
  first_token_.Observe(.1);
  for (int i = 0; i < 5; ++i) {
    Add();
    EXPECT_NEAR(history_.Last().first_token.p50, .1, .005) << i;
  }
  Add();
  EXPECT_EQ(history_.Last().first_token.p50, -1);
  inter_token_.Observe(.02);
  Add();
  EXPECT_NEAR(SeriesValue(history_.Last(), "inter_token_p99_ms"), 20, 1);
}

TEST_F(HistoryTest, ACallThatComesTooEarlyAddsNothing) {
  Add();
  Add(.1);
  EXPECT_TRUE(history_.All().empty());
  Add(.9);
  EXPECT_EQ(history_.All().size(), 1u);
}

TEST_F(HistoryTest, KeepsTenMinutesInOrder) {
  for (int i = 0; i < 1000; ++i) Add();
  const std::vector<HistorySecond> all = history_.All();
  ASSERT_EQ(all.size(), History::kSeconds);
  EXPECT_EQ(all.front().number, 400);
  EXPECT_EQ(all.back().number, 999);
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, &HistorySecond::number));
  EXPECT_EQ(history_.Last().number, 999);
}

TEST_F(HistoryTest, CountsThatBeginAgainGiveNoRate) {
  stats_.generated_tokens = 500;
  Add();
  stats_.generated_tokens = 10;
  Add();
  EXPECT_EQ(history_.Last().generated_tokens_per_second, 0);
}

}  // namespace
}  // namespace quire
