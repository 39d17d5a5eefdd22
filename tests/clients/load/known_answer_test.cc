// quire-load against a server that answers by a script: the figures must be those worked out by
// hand from the script. Nothing is measured earlier than it was sent. The machine's scheduler makes
// it later: an attempt in which that is more than kNoise is repeated, a few times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "clients/load/figures/summary.h"
#include "clients/load/run/driver.h"
#include "tests/clients/load/stub_server.h"

namespace quire::load {
namespace {

using testing::HasSubstr;

constexpr double kNoise = 8;  // ms; the scripts' delays differ by 20 and more
constexpr int kAttempts = 6;

// Collects the differences from the expected values.
class Faults {
 public:
  void Near(const std::string& what, double measured, double expected, double noise = kNoise) {
    if (std::abs(measured - expected) <= noise) return;
    absl::StrAppend(&text_, what, " is ", measured, ", not ", expected, "\n");
  }
  void Equal(const std::string& what, double measured, double expected) {
    Near(what, measured, expected, 0);
  }
  void AtLeast(const std::string& what, double measured, double least) {
    if (measured < least) absl::StrAppend(&text_, what, " is ", measured, ", below ", least, "\n");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// How late the scheduler wakes a thread that sleeps for a millisecond again and again.
class SchedulerDelay {
 public:
  SchedulerDelay() : thread_([this](const std::stop_token& stop) { Run(stop); }) {}
  // The worst so far.
  double ms() const { return worst_ms_.load(); }

 private:
  void Run(const std::stop_token& stop) {
    using Clock = std::chrono::steady_clock;
    while (!stop.stop_requested()) {
      const Clock::time_point due = Clock::now() + std::chrono::milliseconds(1);
      std::this_thread::sleep_until(due);
      const std::chrono::duration<double, std::milli> late = Clock::now() - due;
      worst_ms_.store(std::max(worst_ms_.load(), late.count()));
    }
  }

  std::atomic<double> worst_ms_{0};
  std::jthread thread_;  // last: it uses the other
};

// A fault counts if the machine left the processors to the test: a frame passes from thread to
// thread, and each may wait for its turn. Fails if every such attempt has a fault. On a machine
// that is busy all the time, nothing can be said of milliseconds.
void WithoutNoise(const std::function<void(Faults&)>& attempt) {
  constexpr double kBusyMs = 2;
  std::string last;
  for (int i = 0; i < kAttempts; ++i) {
    Faults faults;
    const SchedulerDelay delay;
    attempt(faults);
    if (faults.text().empty()) return;
    if (delay.ms() < kBusyMs) last = faults.text();
  }
  if (last.empty()) GTEST_SKIP() << "in each of " << kAttempts << " attempts the machine was busy";
  FAIL() << "in " << kAttempts << " attempts; in the last that counts:\n" << last;
}

Settings For(const StubServer& stub, int32_t num_prompts) {
  Settings settings;
  settings.endpoint.server = stub.address();
  settings.workload.num_prompts = num_prompts;
  settings.workload.input_len = {LengthSpec::Kind::kFixed, 8, 0};
  settings.workload.output_len = {LengthSpec::Kind::kFixed, 16, 0};
  settings.workload.ignore_eos = true;
  return settings;
}

Settings AtRate(const StubServer& stub, int32_t num_prompts, double rate) {
  Settings settings = For(stub, num_prompts);
  settings.arrival.request_rate = rate;
  settings.arrival.burstiness = std::numeric_limits<double>::infinity();  // evenly spaced
  return settings;
}

RunRecord Record(const Settings& settings) {
  auto record = load::Run(settings, {}, nullptr);
  EXPECT_TRUE(record.ok()) << record.status();
  return record.ok() ? *std::move(record) : RunRecord();
}

// By numpy.percentile's definition.
double Percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  const double at = percent / 100 * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const double next = values[std::min(low + 1, values.size() - 1)];
  return values[low] + (next - values[low]) * (at - static_cast<double>(low));
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

// All of a figure against the values it stands for, in milliseconds.
void Compare(const std::string& name, const LatencyFigures& figures,
             const std::vector<double>& expected, Faults& faults) {
  faults.Equal(name + " count", static_cast<double>(figures.count),
               static_cast<double>(expected.size()));
  faults.Near(name + " mean", figures.mean, Mean(expected));
  faults.Near(name + " median", figures.median, Percentile(expected, 50));
  faults.Near(name + " min", figures.min, Percentile(expected, 0));
  faults.Near(name + " max", figures.max, Percentile(expected, 100));
  for (size_t i = 0; i < kPercentiles.size(); ++i) {
    faults.Near(absl::StrCat(name, " p", kPercentiles[i]), figures.percentile[i],
                Percentile(expected, kPercentiles[i]));
  }
}

TEST(KnownAnswerTest, EveryLatencyIsTheScripts) {
  // Six requests, one after the other, each with delays of its own.
  const std::vector<std::vector<double>> gaps_ms = {
      {40, 40, 40}, {20, 60, 100}, {}, {80}, {30, 30, 30, 30, 30, 30}, {120, 20}};
  const std::vector<std::vector<int32_t>> tokens = {{1, 1, 1, 1}, {1, 2, 4, 1},          {1},
                                                    {3, 2},       {1, 1, 1, 1, 1, 1, 1}, {2, 4, 4}};
  std::vector<double> ttft, tpot, itl, per_token, e2e, queue;
  std::vector<StubReply> replies;
  for (size_t i = 0; i < gaps_ms.size(); ++i) {
    StubReply reply;
    reply.first_seconds = 0.04 + 0.03 * static_cast<double>(i);
    reply.queue_seconds = 0.01 * static_cast<double>(i);
    reply.frame_tokens = tokens[i];
    ttft.push_back(1e3 * reply.first_seconds);
    queue.push_back(1e3 * reply.queue_seconds);
    double decode = 0;
    int32_t n = tokens[i][0];
    for (size_t k = 0; k < gaps_ms[i].size(); ++k) {
      reply.gap_seconds.push_back(1e-3 * gaps_ms[i][k]);
      itl.push_back(gaps_ms[i][k]);
      const int32_t count = tokens[i][k + 1];
      per_token.insert(per_token.end(), static_cast<size_t>(count), gaps_ms[i][k] / count);
      decode += gaps_ms[i][k];
      n += count;
    }
    if (n > 1) tpot.push_back(decode / (n - 1));
    e2e.push_back(ttft.back() + decode);
    replies.push_back(reply);
  }
  WithoutNoise([&](Faults& faults) {
    StubServer stub({.script = [&](uint64_t i, const auto&) { return replies.at(i); }});
    Settings settings = For(stub, static_cast<int32_t>(replies.size()));
    settings.arrival.max_concurrency = 1;
    const RunRecord run = Record(settings);
    EXPECT_EQ(run.end, RunEnd::kCompleted);
    const Summary s = Summarize(run);
    EXPECT_EQ(s.completed, 6);
    EXPECT_EQ(s.broken_sequences, 0);
    EXPECT_EQ(s.output_tokens, 4 + 8 + 1 + 5 + 7 + 10);
    Compare("ttft", s.ttft, ttft, faults);
    Compare("tpot", s.tpot, tpot, faults);
    Compare("itl", s.itl, itl, faults);
    Compare("itl per token", s.itl_per_token, per_token, faults);
    Compare("e2e", s.e2e, e2e, faults);
    Compare("queue", s.queue, queue, faults);
    faults.Near("duration", 1e3 * s.duration_seconds, Mean(e2e) * 6, 6 * kNoise);
    for (const RequestRecord& r : run.requests) {
      // Never before the server sent it.
      EXPECT_GE(TtftMs(r), ttft[r.index]) << "request " << r.index;
    }
  });
}

TEST(KnownAnswerTest, GoodputCountsWhatMeetsEveryLimit) {
  // Limits: TTFT 100 ms, TPOT 30 ms, E2E 400 ms. Of each five: two good, then a late first token,
  // slow tokens, and one that is long in all.
  const std::vector<StubReply> five = {SteadyReply(0.03, 4, 0.015), SteadyReply(0.06, 1, 0),
                                       SteadyReply(0.15, 4, 0.01), SteadyReply(0.03, 4, 0.06),
                                       SteadyReply(0.05, 26, 0.018)};
  WithoutNoise([&](Faults& faults) {
    StubServer stub({.script = [&](uint64_t i, const auto&) { return five[i % 5]; }});
    Settings settings = AtRate(stub, 40, 25);
    settings.limits = {.ttft_ms = 100, .tpot_ms = 30, .e2e_ms = 400};
    const Summary s = Summarize(Record(settings));
    EXPECT_EQ(s.completed, 40);
    faults.Near("good requests", s.goodput * s.duration_seconds, 16, 1e-6);
    // First sent at 0, the 40th at 39 / 25 s; the last of all to end is that one.
    faults.Near("duration", 1e3 * s.duration_seconds, 1e3 * 39 / 25 + 50 + 25 * 18, 2 * kNoise);
    faults.Near("request throughput", s.request_throughput, 40 / s.duration_seconds, 1e-9);
    faults.Near("offered", s.offered_throughput, 25, 0.01);
  });
}

// Of requests planned every 1/rate seconds against a server that stands still from `begin` to
// `end`.
std::vector<double> StalledTtftsMs(int32_t count, double rate, double first_seconds, double begin,
                                   double end) {
  std::vector<double> ttft;
  for (int32_t i = 0; i < count; ++i) {
    const double arrival = i / rate;
    double ms = 1e3 * first_seconds;
    if (arrival < begin && arrival + first_seconds >= begin) ms += 1e3 * (end - begin);
    if (arrival >= begin && arrival < end) ms += 1e3 * (end - arrival);
    ttft.push_back(ms);
  }
  return ttft;
}

TEST(KnownAnswerTest, AStalledServerShowsInEveryRequestItMadeWait) {
  constexpr double kRate = 50, kFirst = 0.03, kBegin = 1.0, kEnd = 2.0;
  const std::vector<double> expected = StalledTtftsMs(150, kRate, kFirst, kBegin, kEnd);
  // A client that waited would have sent next to nothing in that second, and seen a p90 of 30 ms.
  ASSERT_GT(Percentile(expected, 90), 700);
  WithoutNoise([&](Faults& faults) {
    StubServer stub({.script = [&](uint64_t, const auto&) { return SteadyReply(kFirst, 3, 0.01); },
                     .stalls = {{kBegin, kEnd}}});
    const RunRecord run = Record(AtRate(stub, 150, kRate));
    const Summary s = Summarize(run);
    EXPECT_EQ(s.completed, 150);
    Compare("ttft", s.ttft, expected, faults);
    Compare("ttft_sched", s.ttft_sched, expected, faults);
    faults.Near("lag", s.client_lag.max, 0);
    const std::vector<StubCall> calls = stub.calls();
    const int64_t start = calls[0].arrived_ns;
    const auto in_stall = std::count_if(calls.begin(), calls.end(), [&](const StubCall& call) {
      const double at = 1e-9 * static_cast<double>(call.arrived_ns - start);
      return at >= kBegin && at < kEnd;
    });
    faults.Near("requests sent into the stall", static_cast<double>(in_stall), 50, 1);
  });
}

TEST(KnownAnswerTest, ACapOnConcurrencyHidesAStallFromTtftButNotFromTtftSched) {
  // Two at a time, 50 ms each: 40 requests/s at most, 20 wanted. The second without answers leaves
  // twenty waiting, which takes another second to make up for.
  constexpr int32_t kCount = 80;
  constexpr double kRate = 20, kFirst = 0.03, kService = 0.05, kBegin = 1.01, kEnd = 2.01;
  const auto stalled = [](double at) { return at >= kBegin ? at + kEnd - kBegin : at; };
  const auto stub_clock = [](double at) {
    return at - std::clamp(at - kBegin, 0.0, kEnd - kBegin);
  };
  std::vector<double> ttft, ttft_sched, lag;
  std::priority_queue<double, std::vector<double>, std::greater<>> free({}, {0, 0});
  for (int32_t i = 0; i < kCount; ++i) {
    const double planned = i / kRate;
    const double sent = std::max(planned, free.top());
    free.pop();
    free.push(stalled(stub_clock(sent) + kService));
    const double first = stalled(stub_clock(sent) + kFirst);
    ttft.push_back(1e3 * (first - sent));
    ttft_sched.push_back(1e3 * (first - planned));
    lag.push_back(1e3 * (sent - planned));
  }
  ASSERT_LT(Percentile(ttft, 95), 31);
  ASSERT_GT(Percentile(ttft_sched, 75), 500);
  WithoutNoise([&](Faults& faults) {
    StubServer stub({.script = [&](uint64_t, const auto&) { return SteadyReply(kFirst, 3, 0.01); },
                     .stalls = {{kBegin, kEnd}}});
    Settings settings = AtRate(stub, kCount, kRate);
    settings.arrival.max_concurrency = 2;
    const Summary s = Summarize(Record(settings));
    EXPECT_EQ(s.completed, kCount);
    EXPECT_EQ(stub.peak_open_calls(), 2);
    faults.Near("ttft median", s.ttft.median, Percentile(ttft, 50));
    faults.Near("ttft p90", s.ttft.percentile[1], Percentile(ttft, 90), 2 * kNoise);
    // Each request waits for those before it, and so for their delays too.
    const double queued = 5 * kNoise;
    faults.Near("ttft_sched mean", s.ttft_sched.mean, Mean(ttft_sched), queued);
    faults.Near("ttft_sched p90", s.ttft_sched.percentile[1], Percentile(ttft_sched, 90), queued);
    faults.Near("lag p90", s.client_lag.percentile[1], Percentile(lag, 90), queued);
  });
}

TEST(KnownAnswerTest, WarmUpIsLeftOut) {
  WithoutNoise([](Faults& faults) {
    StubServer stub({.script = [](uint64_t i, const auto&) {
      return SteadyReply(i < 3 ? 0.5 : 0.02, 2, 0.01);  // the first three are slow
    }});
    Settings settings = For(stub, 10);
    settings.arrival.max_concurrency = 1;
    settings.workload.num_warmups = 3;
    const Summary s = Summarize(Record(settings));
    EXPECT_EQ(stub.calls().size(), 13u);
    EXPECT_EQ(s.completed, 10);
    EXPECT_EQ(s.output_tokens, 20);
    faults.Near("ttft max", s.ttft.max, 20, 400);
  });
}

TEST(KnownAnswerTest, LostAndRepeatedTokensAreFailures) {
  const StubFault faults[] = {StubFault::kNone, StubFault::kLostFrame, StubFault::kRepeatedFrame,
                              StubFault::kFrameAfterFinished, StubFault::kNoFinished};
  StubServer stub({.script = [&](uint64_t i, const auto&) {
    StubReply reply = SteadyReply(0.002, 5, 0.002);
    reply.fault = faults[i % 5];
    return reply;
  }});
  Settings settings = For(stub, 20);
  settings.arrival.max_concurrency = 1;
  const RunRecord run = Record(settings);
  const Summary s = Summarize(run);
  EXPECT_EQ(s.completed, 4);
  EXPECT_EQ(s.failed, 16);
  EXPECT_EQ(s.broken_sequences, 16);
  EXPECT_EQ(s.output_tokens, 4 * 5);
  for (const RequestRecord& r : run.requests) {
    EXPECT_EQ(r.outcome == Outcome::kOk, r.index % 5 == 0) << r.index << " " << r.error;
    EXPECT_EQ(r.error.empty(), r.outcome == Outcome::kOk) << r.index;
  }
}

TEST(KnownAnswerTest, AFailureHasItsStatusAndNoShareInTheLatencies) {
  StubServer stub({.script = [](uint64_t i, const auto&) {
    StubReply reply = SteadyReply(i % 4 == 3 ? 1.0 : 0.005, 2, 0.005);
    if (i % 4 != 3) return reply;
    reply.no_frames = true;
    reply.code = grpc::StatusCode::RESOURCE_EXHAUSTED;
    reply.message = "too much";
    return reply;
  }});
  Settings settings = For(stub, 16);
  settings.arrival.max_concurrency = 1;
  const RunRecord run = Record(settings);
  const Summary s = Summarize(run);
  EXPECT_EQ(run.end, RunEnd::kCompleted);
  EXPECT_EQ(s.completed, 12);
  EXPECT_EQ(s.failed, 4);
  EXPECT_EQ(s.ttft.count, 12);
  EXPECT_EQ(run.requests.at(3).status_code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(run.requests.at(3).error, HasSubstr("too much"));
}

TEST(KnownAnswerTest, AServerThatDiesLeavesWhatWasMeasured) {
  StubServer stub({.script = [](uint64_t, const auto&) { return SteadyReply(0.02, 3, 0.02); },
                   .dies_after_seconds = 1.0});
  const RunRecord run = Record(AtRate(stub, 400, 40));  // ten seconds
  const Summary s = Summarize(run);
  EXPECT_EQ(run.end, RunEnd::kServerLost);
  EXPECT_THAT(run.end_reason, HasSubstr(stub.address()));
  EXPECT_GE(s.completed, 10);  // of the first second's forty
  EXPECT_LE(s.completed, 40);
  // Those never sent are there too.
  const auto pending = std::count_if(run.requests.begin(), run.requests.end(),
                                     [](const auto& r) { return r.outcome == Outcome::kPending; });
  EXPECT_GE(pending, 200);
  EXPECT_EQ(s.planned, 400);
  EXPECT_EQ(s.completed + s.failed + s.incomplete + pending, 400);
  EXPECT_LT(s.duration_seconds, 9);
  EXPECT_EQ(s.broken_sequences, 0);
}

TEST(KnownAnswerTest, AWrongTargetIsASentence) {
  StubServer stub({.script = [](uint64_t, const auto&) { return SteadyReply(0.01, 1, 0); },
                   .wrong_service = true});
  const auto wrong = load::Run(For(stub, 10), {}, nullptr);
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr(stub.address()));

  Settings closed_port = For(stub, 10);
  closed_port.endpoint.server = "127.0.0.1:1";
  const auto refused = load::Run(closed_port, {}, nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("127.0.0.1:1"));
}

TEST(KnownAnswerTest, AnUnknownModelIsASentence) {
  StubServer stub({.script = [](uint64_t, const auto&) { return SteadyReply(0.01, 1, 0); }});
  Settings settings = For(stub, 10);
  settings.model = "another";
  const auto run = load::Run(settings, {}, nullptr);
  ASSERT_FALSE(run.ok());
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("another"));
}

TEST(KnownAnswerTest, ARateTheClientCannotSendIsMarkedInvalid) {
  StubServer stub({.script = [](uint64_t, const auto&) { return SteadyReply(0.001, 1, 0); }});
  const RunRecord run = Record(AtRate(stub, 5000, 1e7));
  EXPECT_EQ(Summarize(run).completed, 5000);
  EXPECT_THAT(run.health.invalid_because, HasSubstr("the client was the bottleneck"));
  EXPECT_GT(run.health.lag_p99_seconds, 0.001);
}

}  // namespace
}  // namespace quire::load
