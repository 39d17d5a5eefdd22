// The watchers of a run: tallies, progress, the client's health, the server's gauges.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <sstream>
#include <string>
#include <thread>

#include "clients/load/run/health.h"
#include "clients/load/run/metrics_scraper.h"
#include "clients/load/run/progress.h"
#include "clients/load/run/tally.h"
#include "clients/load/workload/random.h"
#include "tests/clients/load/made_runs.h"

namespace quire::load {
namespace {

using testing::HasSubstr;

TEST(TallyTest, CountsAcrossThreads) {
  Tally tally;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&tally] {
      for (int i = 0; i < 1000; ++i) {
        tally.Sent();
        tally.FirstFrame(1, 0.5);
        tally.NextFrame(2, 0.01, true);
        tally.NextFrame(1, 0.03, false);
        tally.Ended(i % 10 == 0 ? Outcome::kFailed : Outcome::kOk);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Tally::Totals totals = tally.Read();
  EXPECT_EQ(totals.sent, 4000);
  EXPECT_EQ(totals.ended, 4000);
  EXPECT_EQ(totals.failed, 400);
  EXPECT_EQ(totals.tokens, 16000);
  EXPECT_EQ(tally.in_flight(), 0);
  EXPECT_EQ(tally.TakeTtfts().size(), 4000u);
  EXPECT_EQ(tally.TakeTtfts().size(), 0u);
  LatencyHistogram gaps, per_token;
  tally.AddGapsTo(&gaps, &per_token);
  EXPECT_EQ(gaps.count(), 4000);
  EXPECT_NEAR(gaps.mean(), 0.01, 1e-12);
  EXPECT_EQ(per_token.count(), 8000);
  EXPECT_NEAR(per_token.mean(), 0.005, 1e-12);
}

Tally::Totals Totals(int64_t sent, int64_t ended, int64_t failed, int64_t tokens) {
  return {.sent = sent, .ended = ended, .failed = failed, .tokens = tokens};
}

TEST(ProgressTest, ALineSaysTheRatesOfTheLastSeconds) {
  std::ostringstream out;
  Progress progress(ProgressStyle::kLive, 100, &out);
  progress.Tick(1, Totals(10, 2, 0, 50), {0.1, 0.2, 0.3});
  progress.Tick(2, Totals(20, 8, 1, 150), {0.4});
  progress.End();
  EXPECT_THAT(out.str(), HasSubstr("\r   1s  in flight 8  done 2/100  2.0 req/s  50 tok/s"));
  EXPECT_THAT(out.str(), HasSubstr("\r   2s  in flight 12  done 8/100  4.0 req/s  75 tok/s  TTFT "
                                   "p50 200 p99 300 ms  errors 1"));
  EXPECT_EQ(out.str().back(), '\n');
}

TEST(ProgressTest, PlainLinesComeEveryTenSeconds) {
  std::ostringstream out;
  Progress progress(ProgressStyle::kLines, 0, &out);
  for (int i = 1; i <= 25; ++i) progress.Tick(i, Totals(10 * i, 10 * i, 0, 100 * i), {});
  progress.End();
  // Over the last five seconds, not from the start.
  EXPECT_EQ(out.str(),
            "  10s  in flight 0  done 100  10.0 req/s  100 tok/s  TTFT p50 - p99 - ms  errors 0\n"
            "  20s  in flight 0  done 200  10.0 req/s  100 tok/s  TTFT p50 - p99 - ms  errors 0\n");
}

TEST(ProgressTest, NothingWhenQuiet) {
  std::ostringstream out;
  Progress progress(ProgressStyle::kNone, 100, &out);
  for (int i = 1; i <= 25; ++i) progress.Tick(i, Totals(1, 1, 1, 1), {});
  progress.End();
  EXPECT_EQ(out.str(), "");
}

// 100 requests planned 10 ms apart; each is served `delay` later and the server takes `each` a
// request at least.
RunRecord Queueing(double delay, double each) {
  RunRecord run;
  double free = 0;
  for (int i = 0; i < 100; ++i) {
    RequestRecord request;
    const double planned = 1 + 0.01 * i;
    free = std::max(free, planned) + each;
    request.planned_ns = static_cast<int64_t>(1e9 * planned);
    request.sent_ns = request.planned_ns;
    request.end_ns = static_cast<int64_t>(1e9 * (free + delay));
    request.outcome = Outcome::kOk;
    run.requests.push_back(request);
  }
  return run;
}

TEST(HealthTest, AServerThatKeepsUpServesItAll) {
  EXPECT_NEAR(ServedShare(Queueing(0, 0.005)), 1, 1e-6);
  EXPECT_NEAR(ServedShare(Queueing(30, 0.005)), 1, 1e-6);  // slow, but not behind
}

TEST(HealthTest, AServerThatFallsBehindServesItsShare) {
  EXPECT_NEAR(ServedShare(Queueing(0, 0.020)), 0.5, 0.01);
  EXPECT_NEAR(ServedShare(Queueing(0, 0.0125)), 0.8, 0.01);
}

// Answers of very different lengths, some as long as the run: nothing grows.
TEST(HealthTest, VariedLatenciesAreNoSaturation) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RunRecord run = Queueing(0, 0.001);
    for (size_t i = 0; i < run.requests.size(); ++i) {
      Random random(seed, Draw::kLengths, i);
      run.requests[i].end_ns += static_cast<int64_t>(1e9 * random.Exponential() * 0.3);
    }
    EXPECT_GT(ServedShare(run), kServedAtLeast) << seed;
  }
}

TEST(HealthTest, RefusedRequestsAreNotServed) {
  RunRecord run = Queueing(0, 0.001);
  for (size_t i = 0; i < 100; i += 2) run.requests[i].outcome = Outcome::kFailed;
  EXPECT_NEAR(ServedShare(run), 0.5, 0.02);
  // A missed deadline of the workload does not count.
  for (RequestRecord& request : run.requests) {
    if (request.outcome == Outcome::kFailed) request.status_code = 4;
  }
  EXPECT_NEAR(ServedShare(run), 1, 0.02);
}

TEST(HealthTest, FewRequestsProveNothing) {
  RunRecord run = Queueing(0, 1);
  run.requests.resize(19);
  EXPECT_EQ(ServedShare(run), 1);
  run = Queueing(0, 0.001);
  for (RequestRecord& request : run.requests) request.outcome = Outcome::kFailed;
  EXPECT_EQ(ServedShare(run), 0);  // many that fail prove something
}

TEST(HealthTest, TheClientsLimits) {
  LatencyHistogram punctual, late;
  punctual.Add(0.0005, 1000);
  late.Add(0.0005, 970);
  late.Add(0.004, 30);
  EXPECT_EQ(JudgeClient(punctual, 0.001, {1, 5}, 10).invalid_because, "");
  EXPECT_EQ(JudgeClient(LatencyHistogram(), 0.001, {1, 5}, 10).invalid_because, "");
  EXPECT_THAT(JudgeClient(late, 0.001, {1, 5}, 10).invalid_because, HasSubstr("sent 4 ms late"));
  const double cores = CoresUsed();
  EXPECT_THAT(JudgeClient(punctual, 0.001, {9 * cores, 5}, 10).invalid_because,
              HasSubstr("it used 90 %"));
  EXPECT_NEAR(JudgeClient(punctual, 0.001, {5 * cores, 5}, 10).cpu_share, 0.5, 1e-9);
  EXPECT_GT(UsedSoFar().peak_rss_bytes, 1 << 20);
}

// Requests of 1, 2, ..., 9 s, one that failed at once and a warm-up of a minute.
TEST(HealthTest, AClosedLoopMayLeaveASlotEmptyForAHundredthOfItsRequests) {
  RunRecord run;
  for (int i = 1; i <= 9; ++i) {
    run.requests.push_back(MadeRequest({0, 0, 1, 1000 * i, 1000 * i}));
  }
  run.requests.push_back(MadeRequest({0, 0, 1, 1, 1}));
  run.requests.back().outcome = Outcome::kFailed;
  run.requests.push_back(MadeRequest({0, 0, 1, 60'000, 60'000}));
  run.requests.back().warmup = true;
  EXPECT_NEAR(LagLimit(run, true), 0.05, 1e-9);
  EXPECT_EQ(LagLimit(run, false), 0.001);
  run.requests.resize(1);
  run.requests.front().end_ns = run.requests.front().sent_ns + 20'000'000;
  EXPECT_EQ(LagLimit(run, true), 0.001);  // a hundredth of 20 ms is less
  EXPECT_EQ(LagLimit(RunRecord(), true), 0.001);

  LatencyHistogram late;
  late.Add(0.004, 100);
  EXPECT_EQ(JudgeClient(late, 0.05, {1, 5}, 10).invalid_because, "");
  EXPECT_THAT(JudgeClient(late, 0.0035, {1, 5}, 10).invalid_because, HasSubstr("3.5 ms is the"));
}

TEST(MetricsScraperTest, FindsTheGauges) {
  const ScrapedGauges gauges = ParseGauges(
      "# HELP quire_requests_running x\n# TYPE quire_requests_running gauge\n"
      "quire_requests_running_total 9\nquire_requests_running{model=\"m\"} 3\n"
      "vllm:num_requests_waiting 17\nquire_kv_cache_usage_ratio 0.25\n");
  EXPECT_EQ(gauges.running, 3);
  EXPECT_EQ(gauges.waiting, 17);
  EXPECT_EQ(gauges.kv_usage, 0.25);
  EXPECT_TRUE(std::isnan(ParseGauges("").running));
  EXPECT_TRUE(std::isnan(ParseGauges("quire_requests_running{").running));
}

// Answers one connection with `answer` and closes it.
class OneAnswer {
 public:
  explicit OneAnswer(const std::string& answer) : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answer] {
      const int fd = accept(listener_, nullptr, nullptr);
      char request[4096];
      EXPECT_GT(recv(fd, request, sizeof(request), 0), 0);
      EXPECT_EQ(send(fd, answer.data(), answer.size(), 0), static_cast<ssize_t>(answer.size()));
      close(fd);
    });
  }
  ~OneAnswer() {
    thread_.join();
    close(listener_);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  const int listener_;
  int port_ = 0;
  std::thread thread_;
};

TEST(MetricsScraperTest, GetsABody) {
  OneAnswer page("HTTP/1.0 200 OK\r\nA: b\r\n\r\nquire_requests_running 4\n");
  EXPECT_EQ(HttpGet(page.address(), "/metrics"), "quire_requests_running 4\n");
}

TEST(MetricsScraperTest, NothingFromAnErrorOrNobody) {
  OneAnswer page("HTTP/1.1 404 Not Found\r\n\r\nno\n");
  EXPECT_EQ(HttpGet(page.address(), "/metrics"), "");
  EXPECT_EQ(HttpGet("127.0.0.1:1", "/metrics"), "");
  EXPECT_EQ(HttpGet("no port", "/metrics"), "");
}

}  // namespace
}  // namespace quire::load
