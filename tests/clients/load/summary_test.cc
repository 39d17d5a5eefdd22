// Tests of Summarize on a run made by hand; expected values were worked out with numpy (mean, std,
// percentile) from the lists of latencies written beside them.
#include "clients/load/figures/summary.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/clients/load/made_runs.h"

namespace quire::load {
namespace {

constexpr double kNear = 1e-9;

struct Expected {
  int64_t count;
  double mean, median, std, min, max;
  std::array<double, 6> percentile;  // 50 90 95 97 99 99.9
};

void ExpectFigures(const LatencyFigures& figures, const Expected& expected) {
  EXPECT_EQ(figures.count, expected.count);
  EXPECT_NEAR(figures.mean, expected.mean, kNear);
  EXPECT_NEAR(figures.median, expected.median, kNear);
  EXPECT_NEAR(figures.std, expected.std, kNear);
  EXPECT_NEAR(figures.min, expected.min, kNear);
  EXPECT_NEAR(figures.max, expected.max, kNear);
  for (int i = 0; i < 6; ++i) {
    EXPECT_NEAR(figures.percentile[i], expected.percentile[i], kNear) << kPercentiles[i];
  }
}

TEST(SummaryTest, CountsEachOutcomeOnceAndLeavesWarmUpAndSlowReadersOut) {
  const Summary s = Summarize(HandMadeRun());
  EXPECT_EQ(s.planned, 9);
  EXPECT_EQ(s.completed, 5);
  EXPECT_EQ(s.failed, 1);
  EXPECT_EQ(s.cancelled, 1);
  EXPECT_EQ(s.incomplete, 1);
  EXPECT_EQ(s.input_tokens, 107);    // 10 + 20 + 30 + 40 + 7
  EXPECT_EQ(s.output_tokens, 34);    // 5 + 1 + 11 + 17 + 0
  EXPECT_EQ(s.received_tokens, 39);  // and 4 of the cancelled, 1 of the incomplete request
  EXPECT_DOUBLE_EQ(s.received_throughput, 39 / 1.502);
}

TEST(SummaryTest, LatenciesAreNumpys) {
  const Summary s = Summarize(HandMadeRun());
  // [100, 200, 50, 400]: the request without a token has none.
  ExpectFigures(s.ttft,
                {4, 187.5, 150, 134.0475661845451, 50, 400, {150, 340, 370, 382, 394, 399.4}});
  // [100, 201, 53, 400]
  ExpectFigures(s.ttft_sched, {4,
                               188.5,
                               150.5,
                               133.30510117771186,
                               53,
                               400,
                               {150.5, 340.3, 370.15, 382.09, 394.03, 399.403}});
  // [400 / 4, 1000 / 10, 800 / 16]: the request of one token has none.
  ExpectFigures(s.tpot,
                {3, 250.0 / 3, 100, 23.570226039551585, 50, 100, {100, 100, 100, 100, 100, 100}});
  // [500, 200, 1050, 1200, 40]
  ExpectFigures(s.e2e,
                {5, 598, 500, 457.4013554855298, 40, 1200, {500, 1140, 1170, 1182, 1194, 1199.4}});
  // [500, 201, 1053, 1200, 40]
  ExpectFigures(s.e2e_sched, {5,
                              598.8,
                              500,
                              457.82153728283503,
                              40,
                              1200,
                              {500, 1141.2, 1170.6, 1182.36, 1194.12, 1199.412}});
  // [0, 1, 3, 0, 0]
  ExpectFigures(s.client_lag,
                {5, 0.8, 0, 1.1661903789690604, 0, 3, {0, 2.2, 2.6, 2.76, 2.92, 2.992}});
  ExpectFigures(s.queue, {5, 20, 20, 0, 20, 20, {20, 20, 20, 20, 20, 20}});
}

// 40 gaps of 50 ms: as histograms keep equal values exactly, so must these figures.
TEST(SummaryTest, GapsComeFromTheHistograms) {
  const Summary s = Summarize(HandMadeRun());
  ExpectFigures(s.itl, {40, 50, 50, 0, 50, 50, {50, 50, 50, 50, 50, 50}});
  ExpectFigures(s.itl_per_token, {80, 25, 25, 0, 25, 25, {25, 25, 25, 25, 25, 25}});
}

TEST(SummaryTest, RatesDivideByTheDuration) {
  const Summary s = Summarize(HandMadeRun());
  EXPECT_NEAR(s.duration_seconds, 1.502, kNear);
  EXPECT_NEAR(s.request_throughput, 5 / 1.502, kNear);
  EXPECT_NEAR(s.output_throughput, 34 / 1.502, kNear);
  EXPECT_NEAR(s.total_throughput, 141 / 1.502, kNear);
  EXPECT_NEAR(s.mean_concurrency, 2.99 / 1.502, kNear);  // sum of E2E: 2,990 ms
  EXPECT_NEAR(s.offered_throughput, 10, kNear);          // 9 arrivals 100 ms apart
  // Finish times [301, 500, 640, 1253, 1500]: p10 is 380.6, p90 is 1401.2; three requests with
  // 5 + 0 + 11 tokens finish between.
  EXPECT_NEAR(s.steady_output_throughput, 16 / 1.0206, kNear);
}

// Ends at 0, 100, ..., 1000 ms: p10 and p90 lie on the second and the last but one. A wave that
// ends on the first bound was made before it: eight requests in 0.8 s.
TEST(SummaryTest, TheSteadyStretchHasOneBoundOnly) {
  RunRecord run;
  for (int i = 0; i <= 10; ++i) {
    run.requests.push_back(MadeRequest({0, 0, 1, 100 * i, 100 * i}, 1, 7));
    run.requests.back().last_ns += i == 0;  // 0 would say that it never came
  }
  EXPECT_NEAR(Summarize(run).steady_output_throughput, 70, kNear);
}

// A wave of equal requests: ten, sent at once, that end within 45 ms after a second.
TEST(SummaryTest, AWaveThatEndsTogetherHasTheRateOfTheWholeRun) {
  RunRecord run;
  run.duration_ns = 1'045'000'000;
  for (int i = 0; i < 10; ++i) {
    run.requests.push_back(MadeRequest({0, 0, 1, 1000 + 5 * i, 1000 + 5 * i}, 1, 7));
  }
  EXPECT_NEAR(Summarize(run).steady_output_throughput, 70 / 1.045, kNear);
}

TEST(SummaryTest, PeaksAreOfTheBestSecondAndTheFullestMoment) {
  RunRecord run = HandMadeRun();
  const Summary s = Summarize(run);
  // 300 ms: the first four are in flight; never more, as every later one follows an end.
  EXPECT_EQ(s.peak_concurrency, 4);
  EXPECT_EQ(s.peak_output_tokens_per_second, 30);

  // A second that came late counts by its length; one cut short is not stretched.
  run.timeline[1].seconds = 3;
  run.timeline[1].tokens = 80;
  EXPECT_EQ(Summarize(run).peak_output_tokens_per_second, 40);
}

TEST(SummaryTest, AnEndFreesItsPlaceBeforeASendTakesOne) {
  RunRecord run;
  for (int i = 0; i < 5; ++i) {
    run.requests.push_back(MadeRequest({i * 10, i * 10, i * 10 + 5, i * 10 + 9, i * 10 + 10}));
  }
  EXPECT_EQ(Summarize(run).peak_concurrency, 1);
}

// Of TTFT [100, 200, 50, 400, none], TPOT [100, 0, 100, 50, 0], E2E [500, 200, 1050, 1200, 40].
TEST(SummaryTest, GoodputCountsRequestsWithinEveryLimit) {
  const auto goodput = [](GoodputLimits limits) {
    RunRecord run = HandMadeRun();
    run.info.limits = limits;
    return Summarize(run).goodput * 1.502;
  };
  EXPECT_NEAR(goodput({100, 100, 1050}), 3, kNear);   // a value on its limit is good
  EXPECT_NEAR(goodput({150, 99.9, 1050}), 1, kNear);  // only the one without a token
  EXPECT_NEAR(goodput({0, 99.9, 0}), 3, kNear);       // one token or none: TPOT 0
  EXPECT_NEAR(goodput({0, 0, 1000}), 3, kNear);
  EXPECT_NEAR(goodput({39, 0, 0}), 0, kNear);      // without a token, its end stands for the first
  EXPECT_LT(Summarize(HandMadeRun()).goodput, 0);  // no limits, no figure
}

TEST(SummaryTest, CountsBrokenSequencesEvenOfRequestsThatDoNotCount) {
  RunRecord run = HandMadeRun();
  for (RequestRecord& r : run.requests) r.sequence_broken = r.warmup || r.slow_reader;
  EXPECT_EQ(Summarize(run).broken_sequences, 2);
}

TEST(SummaryTest, AnEmptyRunIsAllZero) {
  const Summary s = Summarize(RunRecord());
  EXPECT_EQ(s.planned, 0);
  EXPECT_EQ(s.request_throughput, 0);
  EXPECT_EQ(s.steady_output_throughput, 0);
  EXPECT_EQ(s.offered_throughput, 0);
  EXPECT_EQ(s.ttft.count, 0);
  EXPECT_EQ(s.ttft.percentile[5], 0);
}

TEST(RunRecordTest, EveryOutcomeAndEndHasItsOwnName) {
  EXPECT_STREQ(Name(Outcome::kPending), "pending");
  EXPECT_STREQ(Name(Outcome::kOk), "ok");
  EXPECT_STREQ(Name(Outcome::kCancelled), "cancelled");
  EXPECT_STREQ(Name(Outcome::kFailed), "failed");
  EXPECT_STREQ(Name(Outcome::kIncomplete), "incomplete");
  EXPECT_STREQ(Name(RunEnd::kCompleted), "completed");
  EXPECT_STREQ(Name(RunEnd::kInterrupted), "interrupted");
  EXPECT_STREQ(Name(RunEnd::kServerLost), "server lost");
  EXPECT_STREQ(Name(RunEnd::kTimeLimit), "time limit");
}

}  // namespace
}  // namespace quire::load
