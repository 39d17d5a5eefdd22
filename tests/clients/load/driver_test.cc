// Runs against a server that answers by a script: conversations, cancels, deadlines, slow readers,
// how a run ends, and the program's exit codes. What latencies are is known_answer_test.cc's.
// Covers clients/load/run/load_run.cc, clients/load/run/stream.cc, clients/load/run/target.cc
#include "clients/load/run/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "clients/load/figures/summary.h"
#include "clients/load/load_command.h"
#include "clients/load/options.h"
#include "clients/load/run/health.h"
#include "clients/load/run/target.h"
#include "tests/clients/load/stub_server.h"

namespace quire::load {
namespace {

using testing::AllOf;
using testing::HasSubstr;

LengthSpec Fixed(double value) { return {LengthSpec::Kind::kFixed, value, 0}; }

// A server that gives every request the same answer and keeps the requests.
class Listener {
 public:
  explicit Listener(StubReply reply)
      : stub_({.script = [this, reply](uint64_t, const v1::GenerateRequest& request) {
          std::lock_guard lock(mutex_);
          asked_.push_back(request);
          return reply;
        }}) {}

  std::vector<v1::GenerateRequest> asked() {
    std::lock_guard lock(mutex_);
    return asked_;
  }
  StubServer& stub() { return stub_; }

 private:
  std::mutex mutex_;
  std::vector<v1::GenerateRequest> asked_;
  StubServer stub_;
};

Settings For(const StubServer& stub, int32_t num_prompts) {
  Settings settings;
  settings.endpoint.server = stub.address();
  settings.workload.num_prompts = num_prompts;
  settings.workload.input_len = Fixed(8);
  settings.workload.output_len = Fixed(16);
  return settings;
}

RunRecord Record(const Settings& settings, std::stop_token stop = {}) {
  auto record = load::Run(settings, stop, nullptr);
  EXPECT_TRUE(record.ok()) << record.status();
  return record.ok() ? *std::move(record) : RunRecord();
}

int64_t CountOf(const RunRecord& run, Outcome outcome) {
  return std::count_if(run.requests.begin(), run.requests.end(),
                       [=](const RequestRecord& r) { return r.outcome == outcome; });
}

TEST(DriverTest, ARequestSaysWhatItWasToldTo) {
  Listener server(SteadyReply(0, 2, 0));
  Settings settings = For(server.stub(), 3);
  settings.workload.priorities = {{4, 1}};
  settings.workload.ignore_eos = true;
  settings.workload.text = false;
  settings.workload.top_k = 5;
  Record(settings);
  const auto asked = server.asked();
  ASSERT_EQ(asked.size(), 3u);
  for (const v1::GenerateRequest& request : asked) {
    EXPECT_EQ(request.token_ids().ids_size(), 8);
    EXPECT_EQ(request.stop().max_tokens(), 16u);
    EXPECT_TRUE(request.stop().ignore_eos());
    EXPECT_EQ(request.priority(), 4);
    EXPECT_FALSE(request.output().text());
    EXPECT_TRUE(request.output().token_ids());
    EXPECT_EQ(request.sampling().top_k(), 5u);
    EXPECT_FALSE(request.sampling().has_temperature());
    EXPECT_EQ(request.model(), "stub");
  }
}

TEST(DriverTest, AConversationSendsItsHistoryAgain) {
  Listener server(SteadyReply(0, 3, 0));
  Settings settings = For(server.stub(), 4);
  settings.arrival.max_concurrency = 2;
  settings.workload.turns = Fixed(3);
  settings.workload.turn_input_len = Fixed(5);
  const RunRecord run = Record(settings);
  EXPECT_EQ(Summarize(run).completed, 12);
  EXPECT_LE(server.stub().peak_open_calls(),
            2);  // a turn follows a turn, two conversations at once
  std::map<size_t, int> lengths;
  std::vector<std::vector<uint32_t>> prompts;
  for (const v1::GenerateRequest& request : server.asked()) {
    const auto& ids = request.token_ids().ids();
    prompts.emplace_back(ids.begin(), ids.end());
    ++lengths[prompts.back().size()];
  }
  EXPECT_EQ(lengths, (std::map<size_t, int>{{8, 4}, {16, 4}, {24, 4}}));
  // Every later prompt begins with a whole earlier one.
  for (const auto& prompt : prompts) {
    if (prompt.size() == 8) continue;
    EXPECT_TRUE(std::any_of(prompts.begin(), prompts.end(), [&](const auto& earlier) {
      return earlier.size() + 8 == prompt.size() &&
             std::equal(earlier.begin(), earlier.end(), prompt.begin());
    }));
  }
  // In the record, turns follow each other.
  std::map<int32_t, int64_t> ended;
  for (const RequestRecord& request : run.requests) {
    EXPECT_GE(request.sent_ns, ended[request.conversation]);  // 0 for the first
    ended[request.conversation] = request.end_ns;
  }
}

TEST(DriverTest, ForksAskTwice) {
  Listener server(SteadyReply(0, 1, 0));
  Settings settings = For(server.stub(), 2);
  settings.workload.turns = Fixed(3);
  settings.workload.fork_probability = 1;
  EXPECT_EQ(Summarize(Record(settings)).completed, 2 * (1 + 2 + 4));
}

TEST(DriverTest, ThinkTimePassesBetweenTurns) {
  Listener server(SteadyReply(0, 1, 0));
  Settings settings = For(server.stub(), 3);
  settings.workload.turns = Fixed(2);
  settings.workload.think_seconds_median = 0.2;
  const RunRecord run = Record(settings);
  std::map<int32_t, int64_t> ended;
  for (const RequestRecord& request : run.requests) {
    if (request.turn == 1) {
      EXPECT_EQ(request.planned_ns, ended[request.conversation] + 200'000'000);
      EXPECT_GE(request.sent_ns, request.planned_ns);
    }
    ended[request.conversation] = request.end_ns;
  }
}

TEST(DriverTest, CancelsArePlannedEnds) {
  Listener server(SteadyReply(0, 16, 0.05));
  Settings settings = For(server.stub(), 8);
  settings.workload.cancel_share = 1;
  settings.workload.cancel_after = Fixed(3);
  const RunRecord run = Record(settings);
  EXPECT_EQ(CountOf(run, Outcome::kCancelled), 8);
  for (const RequestRecord& request : run.requests) {
    EXPECT_GE(request.output_tokens, 3);
    EXPECT_LT(request.output_tokens, 16);
  }
  // The server hears of it a moment after the client is done.
  const auto heard = [&] {
    const std::vector<StubCall> calls = server.stub().calls();
    return std::all_of(calls.begin(), calls.end(), [](const StubCall& c) { return c.cancelled; });
  };
  while (!heard()) std::this_thread::yield();
}

TEST(DriverTest, DeadlinesPass) {
  Listener server(SteadyReply(0, 16, 0.1));
  Settings settings = For(server.stub(), 4);
  settings.workload.deadline_share = 1;
  settings.workload.deadline_seconds = {0.2, 0.2};
  const RunRecord run = Record(settings);
  EXPECT_EQ(CountOf(run, Outcome::kFailed), 4);
  for (const RequestRecord& request : run.requests) {
    EXPECT_EQ(request.status_code, static_cast<int32_t>(grpc::StatusCode::DEADLINE_EXCEEDED));
    EXPECT_GE(request.end_ns - request.sent_ns, 190'000'000);
  }
  EXPECT_EQ(run.end, RunEnd::kCompleted);
}

TEST(DriverTest, SlowReadersReadSlowlyAndCountForNothing) {
  Listener server(SteadyReply(0, 4, 0));
  Settings settings = For(server.stub(), 2);
  settings.workload.slow_share = 1;
  settings.workload.slow_delay_seconds = 0.05;
  const RunRecord run = Record(settings);
  EXPECT_EQ(CountOf(run, Outcome::kOk), 2);
  EXPECT_EQ(run.gaps.count(), 0);
  for (const RequestRecord& request : run.requests) {
    EXPECT_TRUE(request.slow_reader);
    EXPECT_EQ(request.output_tokens, 4);
    // Accepted and four frames came before Finished, each read at leisure.
    EXPECT_GE(request.end_ns - request.sent_ns, 5 * 50'000'000);
  }
}

TEST(DriverTest, DetailsAreKeptWhenAskedFor) {
  StubReply reply = SteadyReply(0, 3, 0.03);
  reply.frame_tokens = {1, 2, 4};
  Listener server(reply);
  Settings settings = For(server.stub(), 1);
  settings.detailed = true;
  const RunRecord run = Record(settings);
  ASSERT_EQ(run.requests.size(), 1u);
  const RequestRecord& request = run.requests[0];
  EXPECT_THAT(request.frame_tokens, testing::ElementsAre(1, 2, 4));
  EXPECT_EQ(request.gap_seconds.size(), 2u);
  EXPECT_EQ(request.frames, 3);
  EXPECT_EQ(request.output_tokens, 7);
  EXPECT_EQ(run.gaps.count(), 2);
  EXPECT_EQ(run.gaps_per_token.count(), 6);
  EXPECT_FALSE(request.text.empty());
}

TEST(DriverTest, WithoutIdsTokensAreCountedBySequenceNumber) {
  StubReply reply = SteadyReply(0, 3, 0);
  reply.frame_tokens = {1, 2, 4};
  Listener server(reply);
  Settings settings = For(server.stub(), 2);
  settings.workload.token_ids = false;
  const RunRecord run = Record(settings);
  for (const RequestRecord& request : run.requests) EXPECT_EQ(request.output_tokens, 7);
  EXPECT_EQ(Summarize(run).broken_sequences, 0);
}

TEST(DriverTest, ABrokenStreamSaysHow) {
  const std::pair<StubFault, const char*> faults[] = {
      {StubFault::kLostFrame, "cumulative_tokens has a gap"},
      {StubFault::kRepeatedFrame, "cumulative_tokens has a gap or a repetition"},
      {StubFault::kFrameAfterFinished, "after Finished"},
      {StubFault::kNoFinished, "without Finished"}};
  for (const auto& [fault, words] : faults) {
    StubReply reply = SteadyReply(0, 5, 0);
    reply.fault = fault;
    Listener server(reply);
    const RunRecord run = Record(For(server.stub(), 1));
    ASSERT_EQ(run.requests.size(), 1u);
    EXPECT_TRUE(run.requests[0].sequence_broken);
    EXPECT_EQ(run.requests[0].outcome, Outcome::kFailed);
    EXPECT_THAT(run.requests[0].error, HasSubstr(words));
  }
}

TEST(DriverTest, AClosedLoopHoldsItsConcurrency) {
  Listener server(SteadyReply(0.02, 1, 0));
  Settings settings = For(server.stub(), 30);
  settings.arrival.max_concurrency = 3;
  const RunRecord run = Record(settings);
  EXPECT_EQ(server.stub().peak_open_calls(), 3);
  EXPECT_EQ(Summarize(run).completed, 30);
  for (const RequestRecord& request : run.requests) EXPECT_GE(request.sent_ns, request.planned_ns);
}

TEST(DriverTest, AClosedLoopOfSomeSecondsEnds) {
  Listener server(SteadyReply(0.02, 1, 0));
  Settings settings = For(server.stub(), 0);
  settings.arrival.max_concurrency = 3;
  settings.workload.duration_seconds = 0.5;
  const RunRecord run = Record(settings);
  EXPECT_EQ(run.end, RunEnd::kCompleted);
  EXPECT_GE(run.requests.size(), 3u);
  EXPECT_LE(run.requests.size(), 78u);  // 3 slots, 20 ms each, and the last after the end
  EXPECT_EQ(CountOf(run, Outcome::kOk), static_cast<int64_t>(run.requests.size()));
}

TEST(DriverTest, AConcurrencyRampOpensSlotsOneByOne) {
  Listener server(SteadyReply(0.4, 1, 0));
  Settings settings = For(server.stub(), 4);
  settings.arrival.max_concurrency = 4;
  settings.arrival.concurrency_ramp_seconds = 0.4;
  const RunRecord run = Record(settings);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(run.requests[i].planned_ns - run.requests[i - 1].planned_ns, 100'000'000);
  }
}

TEST(DriverTest, AnInterruptKeepsWhatThereIs) {
  std::stop_source stop;
  StubServer stub({.script = [&stop](uint64_t index, const v1::GenerateRequest&) {
    if (index == 29) stop.request_stop();
    return index < 5 ? SteadyReply(0, 1, 0) : SteadyReply(0, 100, 0.1);
  }});
  Settings settings = For(stub, 1000);
  settings.arrival.request_rate = 50;
  settings.arrival.burstiness = std::numeric_limits<double>::infinity();
  const RunRecord run = Record(settings, stop.get_token());
  EXPECT_EQ(run.end, RunEnd::kInterrupted);
  EXPECT_EQ(run.requests.size(), 1000u);
  // On a busy machine one of the five may still be on its way.
  EXPECT_LE(CountOf(run, Outcome::kOk), 5);
  EXPECT_GE(CountOf(run, Outcome::kOk), 1);
  EXPECT_GE(CountOf(run, Outcome::kIncomplete), 4);
  EXPECT_GE(CountOf(run, Outcome::kPending), 500);
  EXPECT_EQ(CountOf(run, Outcome::kFailed), 0);
  for (size_t i = 0; i < run.requests.size(); ++i) {
    EXPECT_EQ(run.requests[i].index, i);
    EXPECT_GT(run.requests[i].planned_ns, 0);
  }
}

TEST(DriverTest, AnInterruptBeforeTheStartSendsLittle) {
  Listener server(SteadyReply(0, 1, 0));
  std::stop_source stop;
  stop.request_stop();
  Settings settings = For(server.stub(), 5);
  settings.arrival.request_rate = 0.5;
  settings.arrival.burstiness = std::numeric_limits<double>::infinity();
  const RunRecord run = Record(settings, stop.get_token());
  EXPECT_EQ(run.end, RunEnd::kInterrupted);
  EXPECT_GE(CountOf(run, Outcome::kPending), 3);
}

TEST(DriverTest, ATimeLimitEndsARun) {
  Listener server(SteadyReply(0, 1000, 0.1));
  Settings settings = For(server.stub(), 2);
  settings.time_limit_seconds = 0.5;
  const RunRecord run = Record(settings);
  EXPECT_EQ(run.end, RunEnd::kTimeLimit);
  EXPECT_THAT(run.end_reason, HasSubstr("0.5 s"));
  EXPECT_EQ(CountOf(run, Outcome::kIncomplete), 2);
}

TEST(DriverTest, AServerThatFallsBehindIsSaturated) {
  // Asked every 10 ms, it answers every 20 ms.
  StubServer stub({.script = [](uint64_t index, const v1::GenerateRequest&) {
    return SteadyReply(0.01 * static_cast<double>(index), 1, 0);
  }});
  Settings settings = For(stub, 100);
  settings.arrival.request_rate = 100;
  settings.arrival.burstiness = std::numeric_limits<double>::infinity();
  const RunRecord run = Record(settings);
  const std::string& why = run.health.invalid_because;
  if (why.find("the client was the bottleneck") != std::string::npos) {
    GTEST_SKIP() << "the machine was busy, and the client late too";
  }
  EXPECT_NEAR(ServedShare(run), 0.5, 0.25);
  EXPECT_THAT(why, HasSubstr("the server saturated: it served"));
}

TEST(DriverTest, ASweepEndsWithTheRateThatSaturates) {
  // Each run has 30 requests; in the third they come back at half the pace at which they were sent.
  StubServer stub({.script = [](uint64_t index, const v1::GenerateRequest&) {
    const double behind = index < 60 ? 0 : 0.032 * static_cast<double>(index - 60);
    return SteadyReply(0.01 + behind, 1, 0);
  }});
  Settings settings = For(stub, 30);
  settings.arrival.burstiness = std::numeric_limits<double>::infinity();
  settings.sweep_rates = {20};
  const auto runs = RunSweep(settings, {}, nullptr);
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 3u);
  EXPECT_EQ((*runs)[1].info.request_rate, 25);
  EXPECT_EQ((*runs)[2].info.request_rate, 31.25);
}

TEST(DriverTest, ASweepEndsWithTheRateOutsideTheLimits) {
  StubServer stub({.script = [](uint64_t index, const v1::GenerateRequest&) {
    return SteadyReply(index < 30 ? 0.01 : 3.0, 1, 0);
  }});
  Settings settings = For(stub, 30);
  settings.arrival.burstiness = std::numeric_limits<double>::infinity();
  settings.sweep_rates = {30, 40, 50};
  settings.limits.ttft_ms = 2000;
  const auto runs = RunSweep(settings, {}, nullptr);
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_EQ(runs->size(), 2u);
}

TEST(DriverTest, ConnectionsForStreams) {
  EXPECT_EQ(ConnectionsFor(1), 4);
  EXPECT_EQ(ConnectionsFor(10'000), 12);
  EXPECT_EQ(ConnectionsFor(Workload::kEndless), 64);
}

struct Printed {
  int code;
  std::string out, err;
};

Printed Command(const StubServer& stub, std::vector<std::string> args) {
  args.insert(args.begin(), {"--server", stub.address(), "--random-input-len", "8",
                             "--random-output-len", "4", "--quiet"});
  std::ostringstream out, err;
  const int code = RunLoadCommand(args, {}, {out, err});
  return {code, out.str(), err.str()};
}

TEST(LoadCommandTest, ExitCodes) {
  StubServer stub({.script = [](uint64_t, const v1::GenerateRequest& request) {
    StubReply reply = SteadyReply(0, 4, 0);
    if (request.priority() == 1) {
      reply.code = grpc::StatusCode::INTERNAL;
      reply.message = "worn out";
    }
    return reply;
  }});
  const Printed good = Command(stub, {"--num-prompts", "5"});
  EXPECT_EQ(good.code, kExitOk) << good.err;
  EXPECT_THAT(good.out, HasSubstr("Serving Benchmark Result"));
  EXPECT_EQ(good.err, "");
  const Printed failed = Command(stub, {"--num-prompts", "5", "--priorities", "1:1"});
  EXPECT_EQ(failed.code, kExitFailed);
  EXPECT_THAT(failed.err, HasSubstr("worn out"));
  EXPECT_EQ(Command(stub, {"--num-prompts", "none"}).code, kExitUsage);
}

TEST(LoadCommandTest, NothingToRunIsASentence) {
  std::ostringstream out, err;
  EXPECT_EQ(RunLoadCommand({"--server", "127.0.0.1:1"}, {}, {out, err}), kExitFailed);
  EXPECT_THAT(err.str(), AllOf(HasSubstr("quire-load: "), HasSubstr("127.0.0.1:1")));
  EXPECT_EQ(out.str(), "");
}

TEST(LoadCommandTest, AFullDiskCostsTheReportNotTheRun) {
  Listener server(SteadyReply(0, 4, 0));
  const Printed printed =
      Command(server.stub(), {"--num-prompts", "3", "--result-dir", "/proc/nowhere"});
  EXPECT_EQ(printed.code, kExitFailed);
  EXPECT_THAT(printed.out, HasSubstr("Serving Benchmark Result"));
  EXPECT_THAT(printed.err, HasSubstr("/proc/nowhere"));
}

}  // namespace
}  // namespace quire::load
