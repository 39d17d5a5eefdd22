// Tests of the report page and its parts: its content, that it is whole, and that nothing a server
// or a user wrote can become markup.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "clients/load/report/curves.h"
#include "clients/load/report/html_plots.h"
#include "clients/load/report/html_tables.h"
#include "clients/load/report/html_text.h"
#include "clients/load/report/reports.h"
#include "clients/load/report/svg_plot.h"
#include "tests/clients/load/made_runs.h"

namespace quire::load {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string PageOf(const std::vector<RunRecord>& runs) {
  std::vector<Summary> summaries;
  for (const RunRecord& run : runs) summaries.push_back(Summarize(run));
  return HtmlPage(runs, summaries);
}

// Reads the page with Python's XML parser; see check_page.py for all that it demands.
void ExpectSound(const std::string& page) {
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / ("page" + std::to_string(getpid()) + ".html");
  std::ofstream(path) << page;
  const std::string command =
      "/usr/bin/python3 " QUIRE_SOURCE_DIR "/tests/clients/load/check_page.py " + path.string();
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::filesystem::remove(path);
}

TEST(HtmlPageTest, IsSoundForOneRunAndForASweep) {
  ExpectSound(PageOf({HandMadeRun()}));
  ExpectSound(PageOf({PlausibleRun(10, 20)}));
  ExpectSound(PageOf({PlausibleRun(2, 10), PlausibleRun(8, 10), PlausibleRun(30, 10)}));
}

TEST(HtmlPageTest, IsSoundWithNothingOrNextToNothing) {
  ExpectSound(PageOf({}));
  ExpectSound(PageOf({RunRecord()}));
  RunRecord one = HandMadeRun();
  one.requests = {MadeRequest({0, 0, 5, 5, 6}, 1, 1)};
  one.gaps = one.gaps_per_token = LatencyHistogram();
  one.timeline.resize(1);
  ExpectSound(PageOf({one}));
  one.timeline[0].seconds = 0;  // ended in the second it began
  one.duration_ns = 0;
  ExpectSound(PageOf({one}));
  one.requests.clear();
  ExpectSound(PageOf({one, RunRecord()}));
}

TEST(HtmlPageTest, IsSoundWithStrangeNumbers) {
  RunRecord run = PlausibleRun(5, 5);
  run.info.request_rate = kInfinity;
  run.info.limits = {1e-9, 1e12, 0};
  run.timeline[2].kv_usage = kInfinity;
  run.health.cpu_share = kNan;
  run.requests[0].first_ns = run.requests[0].sent_ns - 5;  // a clock gone back
  run.requests[1].last_ns = std::numeric_limits<int64_t>::max() / 2;
  run.requests[2].end_ns = 0;
  ExpectSound(PageOf({run}));
  ExpectSound(PageOf({run, run}));
}

TEST(HtmlPageTest, HostileTextStaysText) {
  const std::string hostile = "<script>alert('x')</script>\"&\x01\xff]]>";
  RunRecord run = PlausibleRun(5, 5);
  run.info.model = run.info.server = run.info.workload = run.info.command_line = hostile;
  run.info.target = run.info.arrival = run.info.date = hostile;
  run.info.metadata = {{hostile, hostile}};
  run.health.invalid_because = run.end_reason = hostile;
  run.end = RunEnd::kServerLost;
  run.requests[0].outcome = Outcome::kFailed;
  run.requests[0].error = hostile;
  const std::string page = PageOf({run});
  ExpectSound(page);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"));
}

TEST(HtmlPageTest, SaysFirstWhetherItCanBeBelieved) {
  RunRecord run = PlausibleRun(5, 5);
  EXPECT_THAT(PageOf({run}), HasSubstr("<main>\n<div class=\"verdict good\" role=\"status\">"
                                       "<p><b>Valid.</b>"));
  run.health.invalid_because = "the client was the bottleneck: late by 3 ms";
  EXPECT_THAT(PageOf({run}),
              HasSubstr("<main>\n<div class=\"verdict bad\" role=\"status\"><p><b>INVALID.</b></p>"
                        "<p>The client was the bottleneck: late by 3 ms.</p>"));
  run.health.invalid_because.clear();
  run.end = RunEnd::kInterrupted;
  const std::string sweep = PageOf({PlausibleRun(2, 5), run});
  EXPECT_THAT(sweep, HasSubstr("<b>PARTIAL.</b>"));
  EXPECT_THAT(sweep, HasSubstr("<p>At 5 req/s: The run ended early (interrupted)."));
}

TEST(HtmlPageTest, HasItsFiguresPlotsAndSettings) {
  RunRecord run = HandMadeRun();
  run.info.limits = {150, 100, 1050};
  run.timeline[0].kv_usage = 0.5;
  const std::string page = PageOf({run});
  for (const char* text :
       {"<h1>tiny</h1>", "<b>22.6</b> <span>tokens/s</span>", "<b>2.00</b> <span>req/s</span>",
        "<b>150</b> <span>ms</span></dd><dd class=\"more\">p99 394 ms", "Time to first token",
        "Time per output token", "Inter-token latency", "End-to-end latency", "Tokens received",
        "Requests in flight", "Tokens in flight", "KV cache in use",
        "<th scope=\"row\">p99.9</th><td>399</td><td>100</td><td>50</td><td>1,200</td>",
        "<pre>quire-load --request-rate 10</pre>", "TTFT 150 ms, TPOT 100 ms, E2E 1.05 s",
        "2026-11-20 18:15 UTC", "prefers-color-scheme:dark", "width=device-width"}) {
    EXPECT_NE(page.find(text), std::string::npos) << text;
  }
  EXPECT_THAT(page, Not(HasSubstr("Requests in the server")));  // not scraped
}

TEST(HtmlPageTest, ASweepShowsGoodputOverTheOfferedRate) {
  const std::string page = PageOf({PlausibleRun(2, 10), PlausibleRun(8, 10)});
  EXPECT_THAT(page, HasSubstr("Goodput and throughput"));
  EXPECT_THAT(page, HasSubstr("offered, requests/s"));
  EXPECT_THAT(page, HasSubstr("<th scope=\"row\">8 req/s</th>"));
}

TEST(SweepPlotsTest, ClosedLoopsLieOverTheirConcurrency) {
  RunRecord a = HandMadeRun(), b = HandMadeRun();
  a.info.request_rate = b.info.request_rate = kInfinity;
  const Summary s = Summarize(a);
  EXPECT_THAT(SweepPlots({a, b}, {s, s}), IsEmpty());  // no place on any axis
  a.info.max_concurrency = 1;
  b.info.max_concurrency = 32;
  EXPECT_THAT(SweepPlots({a, b}, {s, s}), HasSubstr("requests at once"));
  EXPECT_EQ(PointName(b.info), "32 at once");
}

TEST(HtmlTablesTest, CountsWhatWentWrongMostFrequentFirst) {
  RunRecord run = HandMadeRun();
  EXPECT_THAT(ErrorTable(run), HasSubstr("failed: UNAVAILABLE: connection reset by the server"));
  for (int i = 1; i < 4; ++i) {
    run.requests[i].outcome = Outcome::kFailed;
    run.requests[i].error = "RESOURCE_EXHAUSTED: the queue is full";
  }
  EXPECT_THAT(ErrorTable(run), HasSubstr("<tbody>\n<tr><th scope=\"row\">3</th><td>failed: "
                                         "RESOURCE_EXHAUSTED: the queue is full</td></tr>"));
  run.requests.clear();
  EXPECT_THAT(ErrorTable(run), IsEmpty());
}

// Percentiles of [50, 100, 200, 400] ms: p50 150, p99 394, by numpy.
TEST(CurvesTest, ADistributionPassesThroughThePercentiles) {
  const Curve curve = Distribution(HandMadeRun(), Latency::kTtft);
  const auto at = [&](double percent) {
    for (const auto& [ms, p] : curve) {
      if (std::fabs(p - percent) < 1e-9) return ms;
    }
    return -1.0;
  };
  EXPECT_NEAR(at(0), 50, 1e-9);
  EXPECT_NEAR(at(50), 150, 1e-9);
  EXPECT_NEAR(at(99), 394, 1e-9);
  EXPECT_NEAR(at(99.9), 399.4, 1e-9);
  EXPECT_NEAR(at(100), 400, 1e-9);
  EXPECT_EQ(Distribution(HandMadeRun(), Latency::kItl).front().first, 50);
  EXPECT_THAT(Distribution(RunRecord(), Latency::kE2e), IsEmpty());
}

TEST(CurvesTest, StretchesAreMeansOfWholeSeconds) {
  RunRecord run;
  for (int t = 1; t <= 10; ++t) {
    TimelinePoint point;
    point.seconds = t;
    point.tokens = 100 * t;
    point.sent = 2;
    point.in_flight = t;
    if (t > 5) point.kv_usage = 0.1 * (t - 5);
    run.timeline.push_back(point);
  }
  run.timeline.push_back({.seconds = 10.25, .tokens = 45});
  const std::vector<Stretch> s = Stretches(run, 2);  // 6 s, and the rest
  ASSERT_EQ(s.size(), 2u);
  EXPECT_NEAR(s[0].tokens_per_second, 350, 1e-9);  // (100 + ... + 600) / 6
  EXPECT_NEAR(s[0].sent_per_second, 2, 1e-9);
  EXPECT_NEAR(s[0].requests_in_flight, 3.5, 1e-9);
  EXPECT_NEAR(s[0].kv_percent, 10, 1e-9);  // of the one second that was scraped
  EXPECT_TRUE(std::isnan(s[0].running));
  EXPECT_NEAR(s[0].seconds, 3, 1e-9);
  EXPECT_NEAR(s[1].length, 4.25, 1e-9);
  EXPECT_NEAR(s[1].tokens_per_second, 3445 / 4.25, 1e-9);
  // The quarter of a second at the end joins the second before.
  EXPECT_EQ(Stretches(run, 100).size(), 10u);
  EXPECT_NEAR(Stretches(run, 100)[9].tokens_per_second, 1045 / 1.25, 1e-9);
}

// Sent at 0.5 s, tokens from 1 s to 3 s, ended at 3.1 s: the prompt alone at 0.5 s, then output as
// if it came evenly.
TEST(CurvesTest, TokensInFlightGrowBetweenFirstAndLast) {
  RunRecord run;
  run.requests = {MadeRequest({500, 500, 1000, 3000, 3100}, 100, 40)};
  for (int t = 1; t <= 4; ++t) run.timeline.push_back({.seconds = static_cast<double>(t)});
  const std::vector<Stretch> s = Stretches(run, 100);
  ASSERT_EQ(s.size(), 4u);
  EXPECT_NEAR(s[0].tokens_in_flight, 100, 1e-9);
  EXPECT_NEAR(s[1].tokens_in_flight, 110, 1e-9);
  EXPECT_NEAR(s[2].tokens_in_flight, 130, 1e-9);
  EXPECT_NEAR(s[3].tokens_in_flight, 0, 1e-9);
}

TEST(SvgPlotTest, TicksAreRound) {
  EXPECT_THAT(RoundTicks(0, 10, false, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(RoundTicks(0, 101, false, 5), ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_THAT(RoundTicks(-3, 7, false, 5), ElementsAre(-2, 0, 2, 4, 6));
  EXPECT_THAT(RoundTicks(1, 1e6, true, 5), ElementsAre(1, 100, 1e4, 1e6));
  EXPECT_THAT(RoundTicks(3, 120, true, 5), ElementsAre(5, 10, 20, 50, 100));
  EXPECT_THAT(RoundTicks(2, 700, true, 5), ElementsAre(3, 10, 30, 100, 300));
  EXPECT_THAT(RoundTicks(40, 60, true, 4), ElementsAre(40, 45, 50, 55, 60));
  EXPECT_THAT(RoundTicks(5, 5, false, 5), IsEmpty());
  EXPECT_THAT(RoundTicks(0, 5, true, 5), IsEmpty());
  EXPECT_THAT(RoundTicks(kNan, 5, false, 5), IsEmpty());
}

TEST(SvgPlotTest, AMissingValueLiftsThePen) {
  Plot plot{.title = "t", .y = {.low = 0, .high = 10}};
  plot.x = {.low = 0, .high = 4};
  plot.series = {{.points = {{0, 0}, {1, 5}, {2, kNan}, {3, 5}, {4, kInfinity}}}};
  EXPECT_THAT(Figure(plot), HasSubstr("d=\"M0.0 1000.0L250.0 500.0M750.0 500.0h0\""));
}

TEST(SvgPlotTest, ValuesBeyondAFixedAxisLieOnItsEdge) {
  Plot plot{.title = "t", .y = {.low = 0, .high = 10}};
  plot.x = {.low = 0, .high = 4};
  plot.series = {{.points = {{-1, 0}, {5, 20}}}};
  EXPECT_THAT(Figure(plot), HasSubstr("d=\"M0.0 1000.0L1000.0 0.0\""));
}

TEST(SvgPlotTest, ALimitIsNamedWhereItIsDrawnAndOnlyThere) {
  Plot plot{.title = "t", .y = {.low = 0, .high = 100}};
  plot.x = {.log = true};
  plot.series = {{.points = {{1, 0}, {10, 100}}}};
  for (double value : {0.5, 5.0, 50.0}) {  // the axis is stretched to a limit that is near
    plot.limits = {{value, true, "limit"}};
    EXPECT_THAT(Figure(plot), HasSubstr("; dotted: limit")) << value;
    EXPECT_THAT(Figure(plot), HasSubstr("class=\"limit\"")) << value;
  }
  plot.limits = {{5000, true, "limit"}};
  EXPECT_THAT(Figure(plot), Not(HasSubstr("limit")));
  plot.x = {.log = true, .low = 1, .high = 10};
  plot.limits = {{50, true, "limit"}};
  EXPECT_THAT(Figure(plot), Not(HasSubstr("limit")));
}

TEST(SvgPlotTest, ALogAxisLeavesOutWhatItCannotShow) {
  Plot plot{.title = "t", .y = {.log = true, .low = 1, .high = 100}};
  plot.x = {.low = 0, .high = 2};
  plot.series = {{.points = {{0, 1}, {1, 0}, {2, 10}}}};
  EXPECT_THAT(Figure(plot), HasSubstr("d=\"M0.0 1000.0h0M1000.0 500.0h0\""));
}

TEST(SvgPlotTest, NothingToDrawIsSaid) {
  EXPECT_THAT(Figure({.title = "t"}), HasSubstr("Nothing was measured."));
  EXPECT_THAT(Figure({.title = "t", .series = {{.points = {{kNan, 1}, {1, kNan}}}}}),
              HasSubstr("Nothing was measured."));
}

TEST(HtmlTextTest, NumbersReadWell) {
  EXPECT_EQ(Readable(0), "0");
  EXPECT_EQ(Readable(41.23), "41.2");
  EXPECT_EQ(Readable(9.996), "10.0");
  EXPECT_EQ(Readable(0.01234), "0.0123");
  EXPECT_EQ(Readable(1234.5), "1,230");
  EXPECT_EQ(Readable(163878), "163,878");
  EXPECT_EQ(Readable(1234567.8), "1,230,000");
  EXPECT_EQ(Readable(1e-7), "<0.001");
  EXPECT_EQ(Readable(-41.23), "−41.2");
  EXPECT_EQ(Readable(kNan), "–");
  EXPECT_EQ(Compact(2500), "2.5k");
  EXPECT_EQ(Compact(30000000), "30M");
  EXPECT_EQ(Compact(0.1 + 0.2), "0.3");
  EXPECT_EQ(Duration(0.0123), "12.3 µs");
  EXPECT_EQ(Duration(1234), "1.23 s");
  EXPECT_EQ(Duration(0), "0 ms");
  EXPECT_EQ(ReadableDate("soon"), "soon");
}

TEST(HtmlTextTest, EscapesMarkupAndRepairsBrokenBytes) {
  EXPECT_EQ(Escape("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(Escape("µ–\xF0\x9F\x8C\xB1"), "µ–\xF0\x9F\x8C\xB1");
  const std::string broken = "\xEF\xBF\xBD";
  EXPECT_EQ(Escape("\x80"), broken);                                  // a lone continuation
  EXPECT_EQ(Escape("\xC0\xAF"), broken + broken);                     // an overlong slash
  EXPECT_EQ(Escape("\xE2\x82"), broken + broken);                     // cut short
  EXPECT_EQ(Escape("\xED\xA0\x80"), broken);                          // half of a surrogate pair
  EXPECT_EQ(Escape(std::string_view("\0\x1b", 2)), broken + broken);  // not allowed in XML
  EXPECT_EQ(Escape("\xF5\x80\x80\x80"), broken + broken + broken + broken);
}

}  // namespace
}  // namespace quire::load
