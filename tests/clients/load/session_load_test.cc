// Conversations in sessions: the turns sent, the forks and the closes, against a server that keeps
// sessions and one that does not.
// Covers clients/load/run/session_calls.cc
#include "clients/load/run/session_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "clients/load/figures/summary.h"
#include "clients/load/run/driver.h"
#include "tests/clients/load/stub_server.h"

namespace quire::load {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

LengthSpec Fixed(double value) { return {LengthSpec::Kind::kFixed, value, 0}; }

class SessionLoadTest : public testing::Test {
 protected:
  // Conversations of three turns, 8 tokens and then 5, answered by three.
  Settings Conversations(int32_t count) {
    Settings settings;
    settings.endpoint.server = server_.address();
    settings.workload.num_prompts = count;
    settings.workload.input_len = Fixed(8);
    settings.workload.output_len = Fixed(16);
    settings.workload.turns = Fixed(3);
    settings.workload.turn_input_len = Fixed(5);
    return settings;
  }
  RunRecord Record(const Settings& settings) {
    auto record = load::Run(settings, {}, nullptr);
    EXPECT_TRUE(record.ok()) << record.status();
    return record.ok() ? *std::move(record) : RunRecord();
  }
  StubReply Reply(uint64_t index, const v1::GenerateRequest& request) {
    std::lock_guard lock(mutex_);
    asked_.push_back(request);
    return script_ ? script_(index) : SteadyReply(0, 3, 0);
  }

  std::mutex mutex_;
  std::vector<v1::GenerateRequest> asked_;
  std::function<StubReply(uint64_t)> script_;
  StubSessions sessions_;
  StubServer server_{{.script = [this](uint64_t i, const auto& r) { return Reply(i, r); },
                      .sessions = &sessions_}};
};

TEST_F(SessionLoadTest, ATurnSendsOnlyWhatIsNew) {
  Settings settings = Conversations(4);
  settings.workload.num_warmups = 2;
  const RunRecord run = Record(settings);
  EXPECT_TRUE(run.info.sessions);
  EXPECT_TRUE(run.info.conversations);
  EXPECT_EQ(Summarize(run).completed, 12);
  std::map<std::string, std::vector<std::pair<uint32_t, int>>> turns;  // position, new tokens
  for (const v1::GenerateRequest& request : asked_) {
    if (!request.has_session_id()) continue;  // the warm-up
    turns[request.session_id()].emplace_back(request.expected_position(),
                                             request.token_ids().ids_size());
    EXPECT_EQ(request.create_session(), request.expected_position() == 0);
    EXPECT_THAT(request.session_id(), MatchesRegex("load-[0-9]+-[0-9]+-[0-9a-f]+-[0-3]"));
  }
  EXPECT_EQ(asked_.size(), 14u);
  EXPECT_EQ(turns.size(), 4u);
  for (const auto& [name, all] : turns) {
    EXPECT_EQ(all, (std::vector<std::pair<uint32_t, int>>{{0, 8}, {11, 5}, {19, 5}})) << name;
  }
  // The record has the whole prompts, as it has without sessions.
  std::multiset<int32_t> prompts;
  for (const RequestRecord& request : run.requests) {
    if (!request.warmup) prompts.insert(request.prompt_tokens);
  }
  EXPECT_EQ(prompts, (std::multiset<int32_t>{8, 8, 8, 8, 16, 16, 16, 16, 24, 24, 24, 24}));
  EXPECT_TRUE(sessions_.positions().empty());  // all closed
}

TEST_F(SessionLoadTest, TheNextRunHasOtherNames) {
  Record(Conversations(1));
  Record(Conversations(1));
  std::set<std::string> names;
  for (const v1::GenerateRequest& request : asked_) names.insert(request.session_id());
  EXPECT_EQ(names.size(), 2u);
}

TEST_F(SessionLoadTest, AForkIsOneOfTheServers) {
  Settings settings = Conversations(2);
  settings.workload.fork_probability = 1;
  EXPECT_EQ(Summarize(Record(settings)).completed, 2 * (1 + 2 + 4));
  const std::vector<std::string> calls = sessions_.calls();
  const auto forks = std::count_if(calls.begin(), calls.end(), [](const std::string& call) {
    return call.rfind("fork", 0) == 0;
  });
  EXPECT_EQ(forks, 2 * (1 + 2));
  EXPECT_THAT(calls[0], StartsWith("fork load-"));
  EXPECT_THAT(calls[0], HasSubstr(" at 11"));
  EXPECT_TRUE(sessions_.positions().empty());
}

TEST_F(SessionLoadTest, ATurnThatFailsEndsAndClosesItsConversation) {
  script_ = [](uint64_t index) {
    StubReply reply = SteadyReply(0, 3, 0);
    if (index == 1) {
      reply.code = grpc::StatusCode::INTERNAL;
      reply.message = "no";
    }
    return reply;
  };
  const Summary summary = Summarize(Record(Conversations(1)));
  EXPECT_EQ(summary.completed, 1);
  EXPECT_EQ(summary.failed, 1);
  EXPECT_TRUE(sessions_.positions().empty());
}

TEST_F(SessionLoadTest, WhoThinksWhenARunIsStoppedIsClosedToo) {
  Settings settings = Conversations(3);
  settings.workload.think_seconds_median = 3600;
  std::stop_source stop;
  std::thread stopper([&] {
    const auto all_think = [&] {
      const auto positions = sessions_.positions();
      return positions.size() == 3 &&
             std::all_of(positions.begin(), positions.end(),
                         [](const auto& session) { return session.second == 11; });
    };
    while (!all_think()) std::this_thread::yield();
    stop.request_stop();
  });
  const auto run = load::Run(settings, stop.get_token(), nullptr);
  stopper.join();
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->end, RunEnd::kInterrupted);
  EXPECT_TRUE(sessions_.positions().empty());
}

TEST_F(SessionLoadTest, AnEndElsewhereBreaksTheProtocol) {
  script_ = [](uint64_t) {
    StubReply reply = SteadyReply(0, 3, 0);
    reply.fault = StubFault::kWrongPosition;
    return reply;
  };
  const RunRecord run = Record(Conversations(1));
  EXPECT_EQ(Summarize(run).broken_sequences, 1);
  EXPECT_THAT(run.requests.at(0).error, HasSubstr("another position"));
}

TEST_F(SessionLoadTest, OffSendsHistoriesAgain) {
  Settings settings = Conversations(2);
  settings.sessions = SessionUse::kOff;
  const RunRecord run = Record(settings);
  EXPECT_FALSE(run.info.sessions);
  EXPECT_EQ(Summarize(run).completed, 6);
  for (const v1::GenerateRequest& request : asked_) EXPECT_FALSE(request.has_session_id());
}

TEST(SessionlessServerTest, AutoSendsHistoriesAgainAndOnIsRefused) {
  StubServer server({.script = [](uint64_t, const auto& request) {
    EXPECT_FALSE(request.has_session_id());
    return SteadyReply(0, 1, 0);
  }});
  Settings settings;
  settings.endpoint.server = server.address();
  settings.workload.num_prompts = 2;
  settings.workload.turns = Fixed(2);
  auto run = load::Run(settings, {}, nullptr);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_FALSE(run->info.sessions);
  settings.sessions = SessionUse::kOn;
  EXPECT_THAT(std::string(load::Run(settings, {}, nullptr).status().message()),
              HasSubstr("keeps no sessions"));
}

}  // namespace
}  // namespace quire::load
