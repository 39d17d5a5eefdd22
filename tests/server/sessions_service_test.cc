// quire.v1.Sessions over real gRPC: the effect of each call, its refusals and their reasons. A
// refusal leaves the session as it was; two callers see nothing of each other.
// Covers server/session/sessions_service.cc, server/session/session_call.cc,
// server/session/session_watch.cc, server/session/session_watches.cc,
// server/session/session_stream.cc, server/call/serial_thread.cc, server/identity/door.cc,
// server/call/session_codec.cc, server/session/run_operation.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "server/session/session_watches.h"
#include "tests/server/session_client.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using Sessions = v1::Sessions::Stub;
using grpc::StatusCode;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TestServerOptions TwoTenants() {
  TestServerOptions options;
  options.front.door = TenantInMetadata();
  return options;
}

void ExpectRefused(const grpc::Status& status, StatusCode code, const std::string& reason) {
  EXPECT_EQ(status.error_code(), code) << status.error_message();
  EXPECT_EQ(Reason(status), reason) << status.error_message();
  EXPECT_FALSE(status.error_message().empty());
}

TEST(SessionsTest, CreatesAndFindsSessions) {
  TestServer server;
  SessionClient client(server);
  v1::CreateSessionRequest request;
  request.set_session_id("talk:1");
  request.mutable_options()->set_ttl_seconds(60);
  request.mutable_options()->set_idle_offload_after_seconds(0.5);
  request.mutable_options()->set_retain_priority(-7);
  const v1::Session made = client.Call(&Sessions::Create, request);
  ASSERT_TRUE(client.status.ok()) << client.status.error_message();
  for (const v1::Session& session : {made, client.Get("talk:1")}) {
    EXPECT_EQ(session.session_id(), "talk:1");
    EXPECT_EQ(session.position(), 0u);
    EXPECT_TRUE(session.has_position());
    EXPECT_EQ(session.turns(), 0u);
    EXPECT_EQ(session.options().ttl_seconds(), 60);
    EXPECT_EQ(session.options().idle_offload_after_seconds(), 0.5);
    EXPECT_EQ(session.options().retain_priority(), -7);
    EXPECT_FALSE(session.pinned());
    EXPECT_GT(session.expires_in_seconds(), 50);
    EXPECT_LE(session.expires_in_seconds(), 60);
    EXPECT_GE(session.age_seconds(), 0);
    EXPECT_LT(session.age_seconds(), 10);
    EXPECT_NE(session.state(), v1::SESSION_STATE_UNSPECIFIED);
  }
  ExpectRefused((client.Create("talk:1"), client.status), StatusCode::ALREADY_EXISTS,
                "SESSION_EXISTS");
  // Without a name the server makes one, another each time.
  const std::string first = client.Call(&Sessions::Create, v1::CreateSessionRequest()).session_id();
  const std::string second =
      client.Call(&Sessions::Create, v1::CreateSessionRequest()).session_id();
  EXPECT_EQ(first.size(), 2u + 32);
  EXPECT_NE(first, second);
  // Options that the client left out are the server's defaults.
  EXPECT_EQ(client.Get(first).options().ttl_seconds(), 3600);
  EXPECT_EQ(client.Get(first).options().idle_offload_after_seconds(), 3600);
}

TEST(SessionsTest, TouchChangesOnlyGivenOptions) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  v1::TouchSessionRequest request;
  request.set_session_id("a");
  request.mutable_options()->set_retain_priority(9);
  client.Call(&Sessions::Touch, request);
  request.mutable_options()->clear_retain_priority();
  request.mutable_options()->set_ttl_seconds(100);
  const v1::Session session = client.Call(&Sessions::Touch, request);
  EXPECT_EQ(session.options().retain_priority(), 9);
  EXPECT_EQ(session.options().ttl_seconds(), 100);
  EXPECT_EQ(session.options().idle_offload_after_seconds(), 3600);
  EXPECT_LE(session.expires_in_seconds(), 100);
  EXPECT_GT(session.expires_in_seconds(), 90);
}

TEST(SessionsTest, ListedInOrderAPageAtATime) {
  TestServer server;
  SessionClient client(server);
  for (const char* name : {"d", "b", "a", "e", "c"}) client.Create(name);
  const auto names = [](const v1::ListSessionsResponse& response) {
    std::vector<std::string> names;
    for (const v1::Session& session : response.sessions()) names.push_back(session.session_id());
    return names;
  };
  const v1::ListSessionsResponse first = client.List(2);
  EXPECT_THAT(names(first), ElementsAre("a", "b"));
  EXPECT_EQ(first.next_after(), "b");
  const v1::ListSessionsResponse second = client.List(3, first.next_after());
  EXPECT_THAT(names(second), ElementsAre("c", "d", "e"));
  EXPECT_FALSE(second.has_next_after());
  EXPECT_THAT(names(client.List(1000)), ElementsAre("a", "b", "c", "d", "e"));
  client.List(0);
  EXPECT_EQ(ViolatedField(client.status), "page_size");
  client.List(1001);
  EXPECT_EQ(ViolatedField(client.status), "page_size");
  client.List(5, "not a name");
  EXPECT_EQ(ViolatedField(client.status), "after");
}

TEST(SessionsTest, ForkedTruncatedAndClosed) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  const StreamedOutput turn = client.Say("a", "hello", 5);
  ASSERT_TRUE(turn.status.ok()) << turn.status.error_message();
  // <s>, five bytes, five of the script's.
  EXPECT_EQ(turn.finished.position(), 11u);
  EXPECT_EQ(client.Fork("a", "b").position(), 11u);
  v1::ForkSessionRequest part;
  part.set_session_id("a");
  part.set_position(3);
  const v1::Session third = client.Call(&Sessions::Fork, part);
  EXPECT_EQ(third.position(), 3u);
  EXPECT_EQ(third.session_id().size(), 34u);
  EXPECT_EQ(client.Truncate("b", 4).position(), 4u);
  EXPECT_EQ(client.Truncate("b", 4).position(), 4u);
  EXPECT_EQ(client.Get("a").position(), 11u);
  EXPECT_EQ(client.Say("b", "xy", 2).finished.position(), 8u);
  EXPECT_EQ(client.Truncate("b", 0).position(), 0u);
  EXPECT_TRUE(client.Close("b").ok());
  ExpectRefused((client.Get("b"), client.status), StatusCode::NOT_FOUND, "SESSION_NOT_FOUND");
  ExpectRefused(client.Close("b"), StatusCode::NOT_FOUND, "SESSION_NOT_FOUND");
  EXPECT_EQ(client.Get("a").turns(), 1u);
}

// Every call that names a session, with the name of no session.
TEST(SessionsTest, UnknownSessionsAreNotFound) {
  TestServer server;
  SessionClient client(server);
  const auto expect = [&] {
    ExpectRefused(client.status, StatusCode::NOT_FOUND, "SESSION_NOT_FOUND");
  };
  client.Get("x"), expect();
  client.Truncate("x", 0), expect();
  client.Fork("x", "y"), expect();
  client.Close("x"), expect();
  client.Do(&Sessions::Touch, "x"), expect();
  client.Do(&Sessions::Offload, "x"), expect();
  client.Do(&Sessions::Prefetch, "x"), expect();
  client.Do(&Sessions::Pin, "x"), expect();
  client.Do(&Sessions::Unpin, "x"), expect();
  client.Say("x", "hi"), expect();
  client.Export("x"), expect();
  grpc::ClientContext context;
  v1::WatchSessionRequest watch;
  watch.set_session_id("x");
  client.status = server.sessions().Watch(&context, watch)->Finish(), expect();
  server.ExpectNothingLeft();
}

TEST(SessionsTest, BadNamesAndOptionsNameTheField) {
  TestServer server;
  SessionClient client(server);
  const auto violated = [&] {
    EXPECT_EQ(client.status.error_code(), StatusCode::INVALID_ARGUMENT);
    return ViolatedField(client.status);
  };
  for (const std::string& name : {std::string(), std::string("a b"), std::string(129, 'x'),
                                  std::string("caf\xC3\xA9"), std::string("a/b")}) {
    client.Create(name);
    EXPECT_EQ(violated(), "session_id") << name;
    client.Get(name);
    EXPECT_EQ(violated(), "session_id") << name;
    client.Say(name, "hi");
    EXPECT_EQ(violated(), "session_id") << name;
    client.Export(name);
    EXPECT_EQ(violated(), "session_id") << name;
    client.Import(name, "x");
    EXPECT_EQ(violated(), "session_id") << name;
  }
  client.Create("a");
  client.Fork("a", "b/c");
  EXPECT_EQ(violated(), "new_session_id");
  v1::TruncateSessionRequest nowhere;
  nowhere.set_session_id("a");
  client.Call(&Sessions::Truncate, nowhere);
  EXPECT_EQ(violated(), "position");
  for (const double bad : {-1.0, 0.0, -0.0, 86400.5, std::nan(""), -kInfinity, kInfinity, 1e300}) {
    v1::CreateSessionRequest request;
    request.mutable_options()->set_ttl_seconds(bad);
    client.Call(&Sessions::Create, request);
    EXPECT_EQ(violated(), "options.ttl_seconds") << bad;
    v1::TouchSessionRequest touch;
    touch.set_session_id("a");
    touch.mutable_options()->set_ttl_seconds(bad);
    client.Call(&Sessions::Touch, touch);
    EXPECT_EQ(violated(), "options.ttl_seconds") << bad;
  }
  for (const double bad : {-1e-9, 86400.5, std::nan(""), kInfinity}) {
    v1::CreateSessionRequest request;
    request.mutable_options()->set_idle_offload_after_seconds(bad);
    client.Call(&Sessions::Create, request);
    EXPECT_EQ(violated(), "options.idle_offload_after_seconds") << bad;
  }
  for (const int32_t bad : {-101, 101, INT32_MIN}) {
    v1::CreateSessionRequest request;
    request.mutable_options()->set_retain_priority(bad);
    client.Call(&Sessions::Create, request);
    EXPECT_EQ(violated(), "options.retain_priority") << bad;
  }
  EXPECT_EQ(client.List().sessions_size(), 1);
  EXPECT_EQ(client.Get("a").options().ttl_seconds(), 3600);
}

TEST(SessionsTest, QuotasAreKept) {
  TestServerOptions options = TwoTenants();
  options.sessions.max_sessions = 3;
  options.sessions.max_sessions_per_tenant = 2;
  TestServer server(options);
  SessionClient mine(server, 1);
  SessionClient yours(server, 2);
  mine.Create("a");
  mine.Create("b");
  ExpectRefused((mine.Create("c"), mine.status), StatusCode::RESOURCE_EXHAUSTED,
                "TOO_MANY_SESSIONS");
  ExpectRefused((mine.Fork("a", "c"), mine.status), StatusCode::RESOURCE_EXHAUSTED,
                "TOO_MANY_SESSIONS");
  yours.Create("a");
  EXPECT_TRUE(yours.status.ok());
  ExpectRefused((yours.Create("b"), yours.status), StatusCode::RESOURCE_EXHAUSTED,
                "TOO_MANY_SESSIONS");
  EXPECT_TRUE(mine.Close("a").ok());
  yours.Create("b");
  EXPECT_TRUE(yours.status.ok());
}

TEST(SessionsTest, PinsAreBoundedByTheirShareOfThePool) {
  TestServerOptions options;
  options.num_blocks = 41;                   // 40 of use
  options.sessions.max_pinned_share = 0.25;  // 10
  TestServer server(options);
  SessionClient client(server);
  for (const char* name : {"a", "b"}) {
    client.Create(name);
    EXPECT_TRUE(client.Say(name, std::string(100, name[0]), 4).status.ok());
  }
  EXPECT_TRUE(client.Do(&Sessions::Pin, "a").pinned());
  EXPECT_TRUE(client.Do(&Sessions::Pin, "a").pinned());
  ExpectRefused((client.Do(&Sessions::Pin, "b"), client.status), StatusCode::RESOURCE_EXHAUSTED,
                "PIN_QUOTA");
  EXPECT_FALSE(client.Get("b").pinned());
  EXPECT_FALSE(client.Do(&Sessions::Unpin, "a").pinned());
  EXPECT_TRUE(client.Do(&Sessions::Pin, "b").pinned());
}

// Every call answers another caller's session as if it did not exist.
TEST(SessionsTest, CallersDoNotSeeEachOthersSessions) {
  TestServer server(TwoTenants());
  SessionClient mine(server, 1);
  SessionClient yours(server, 2);
  mine.Create("talk");
  ASSERT_TRUE(mine.Say("talk", "secret", 20).status.ok());
  const auto expect = [&] {
    ExpectRefused(yours.status, StatusCode::NOT_FOUND, "SESSION_NOT_FOUND");
  };
  yours.Get("talk"), expect();
  yours.Say("talk", "and?"), expect();
  yours.Truncate("talk", 0), expect();
  yours.Fork("talk", "mine"), expect();
  yours.Export("talk"), expect();
  yours.Close("talk"), expect();
  EXPECT_EQ(yours.List().sessions_size(), 0);
  yours.Create("talk");
  EXPECT_TRUE(yours.status.ok());
  EXPECT_EQ(yours.Get("talk").position(), 0u);
  EXPECT_EQ(mine.Get("talk").position(), 27u);
  EXPECT_TRUE(yours.Close("talk").ok());
  EXPECT_EQ(mine.Get("talk").position(), 27u);
  // Nor is KV shared: the same prompt is found by its owner alone.
  v1::GenerateRequest request = AskFor(2);
  request.set_text(std::string(64, 'x'));
  EXPECT_EQ(mine.Turn(request).finished.usage().cached_tokens(), 0u);
  EXPECT_EQ(yours.Turn(request).finished.usage().cached_tokens(), 0u);
  EXPECT_EQ(mine.Turn(request).finished.usage().cached_tokens(), 64u);
  EXPECT_EQ(yours.Turn(request).finished.usage().cached_tokens(), 64u);
}

TEST(SessionsTest, LeasesRunOut) {
  TestServer server;
  SessionClient client(server);
  v1::CreateSessionRequest request;
  request.set_session_id("brief");
  request.mutable_options()->set_ttl_seconds(0.05);
  client.Call(&Sessions::Create, request);
  ASSERT_TRUE(client.status.ok());
  EXPECT_TRUE(TestServer::Eventually([&] {
    client.Get("brief");
    return Reason(client.status) == "SESSION_NOT_FOUND";
  }));
}

class Watch {
 public:
  Watch(TestServer& server, const std::string& name) {
    v1::WatchSessionRequest request;
    request.set_session_id(name);
    reader_ = server.sessions().Watch(&context_, request);
  }
  // The next state; SESSION_STATE_UNSPECIFIED at the end.
  v1::Session Next() {
    v1::Session session;
    if (!reader_->Read(&session)) session.clear_state();
    return session;
  }
  grpc::Status Finish() { return reader_->Finish(); }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Session>> reader_;
};

bool CountsWatches(TestServer& server, int count) {
  const std::string line = "quire_session_watches{model_name=\"test-model\"} ";
  return server.Metrics().find(line + std::to_string(count) + "\n") != std::string::npos;
}

TEST(WatchTest, ReportsEachChangeUntilTheSessionIsClosed) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  Watch watch(server, "a");
  EXPECT_EQ(watch.Next().position(), 0u);
  ASSERT_TRUE(client.Say("a", "hello", 5).status.ok());
  std::set<v1::SessionState> states;
  for (v1::Session session; session.position() != 11;) {
    session = watch.Next();
    states.insert(session.state());
    ASSERT_NE(session.state(), v1::SESSION_STATE_UNSPECIFIED);
  }
  EXPECT_TRUE(states.contains(v1::SESSION_STATE_ACTIVE));
  EXPECT_TRUE(client.Close("a").ok());
  v1::Session last;
  for (v1::Session next = watch.Next(); next.has_state(); next = watch.Next()) last = next;
  EXPECT_EQ(last.state(), v1::SESSION_STATE_CLOSED);
  EXPECT_TRUE(watch.Finish().ok());
}

TEST(WatchTest, DoesNotReportSessionsOfOtherCallers) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  client.Create("b");
  Watch watch(server, "a");
  EXPECT_EQ(watch.Next().session_id(), "a");
  ASSERT_TRUE(client.Say("b", "hello", 5).status.ok());
  EXPECT_TRUE(client.Close("a").ok());
  for (v1::Session next = watch.Next(); next.has_state(); next = watch.Next()) {
    EXPECT_EQ(next.session_id(), "a");
    EXPECT_EQ(next.position(), 0u);
  }
}

TEST(WatchTest, EndsWithItsReaderAndWithTheServer) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  {
    Watch watch(server, "a");
    EXPECT_TRUE(watch.Next().has_state());
    EXPECT_TRUE(CountsWatches(server, 1));
    watch.Cancel();
    EXPECT_EQ(watch.Finish().error_code(), StatusCode::CANCELLED);
  }
  EXPECT_TRUE(TestServer::Eventually([&] { return CountsWatches(server, 0); }));
  client.Say("a", "more", 2);
  EXPECT_TRUE(client.status.ok());
  Watch watch(server, "a");
  EXPECT_TRUE(watch.Next().has_state());
  server.front().Shutdown(5);
  EXPECT_FALSE(watch.Next().has_state());
  EXPECT_FALSE(watch.Finish().ok());
}

// A reader that is behind misses states, but gets the latest; the memory kept for it does not grow.
TEST(WatchTest, AReaderThatIsBehindGetsTheLatest) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  Watch watch(server, "a");
  EXPECT_EQ(watch.Next().position(), 0u);
  for (int turn = 0; turn < 30; ++turn) ASSERT_TRUE(client.Say("a", "x", 1).status.ok());
  const uint32_t position = client.Get("a").position();
  EXPECT_EQ(position, 61u);
  uint32_t seen = 0;
  while (seen != position) {
    const v1::Session session = watch.Next();
    ASSERT_TRUE(session.has_state());
    EXPECT_GE(session.position(), seen);
    seen = session.position();
  }
}

TEST(WatchTest, LimitsWatchersAndReportsOnlyTheirSession) {
  struct Counter : SessionWatcher {
    void Changed(const SessionInfo&) override { ++count; }
    int count = 0;
  };
  SessionWatches watches;
  std::vector<std::shared_ptr<Counter>> counters;
  for (size_t i = 0; i < SessionWatches::kMaxWatchers; ++i) {
    counters.push_back(std::make_shared<Counter>());
    ASSERT_TRUE(watches.Add(i % 2, i % 3 == 0 ? "a" : "b", counters.back()));
  }
  EXPECT_FALSE(watches.Add(0, "a", std::make_shared<Counter>()));
  watches.Remove(0, "a", counters[0].get());
  watches.Remove(0, "a", counters[0].get());
  watches.OnSessionChange({.name = "a", .tenant = 0});
  for (size_t i = 0; i < counters.size(); ++i) {
    EXPECT_EQ(counters[i]->count, i % 6 == 0 && i > 0 ? 1 : 0) << i;
  }
  EXPECT_TRUE(watches.Add(1, "b", counters[0]));
  EXPECT_FALSE(watches.Add(1, "b", counters[1]));
}

TEST(SessionsTest, ADrainingServerTakesNoNewSessions) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  ASSERT_TRUE(client.Say("a", "hello", 5).status.ok());
  server.front().StartDrain();
  ExpectRefused((client.Create("b"), client.status), StatusCode::UNAVAILABLE, "DRAINING");
  ExpectRefused((client.Fork("a", "b"), client.status), StatusCode::UNAVAILABLE, "DRAINING");
  ExpectRefused((client.Say("a", "more"), client.status), StatusCode::UNAVAILABLE, "DRAINING");
  ExpectRefused((client.Import("b", "x"), client.status), StatusCode::UNAVAILABLE, "DRAINING");
  EXPECT_EQ(client.Get("a").position(), 11u);
  EXPECT_FALSE(client.Export("a").empty());
  EXPECT_TRUE(client.status.ok());
}

TEST(SessionsTest, ManyCallersAtOnce) {
  TestServer server;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&server, thread] {
      SessionClient client(server);
      const std::string name = "s" + std::to_string(thread);
      for (int round = 0; round < 20; ++round) {
        client.Create(name);
        EXPECT_TRUE(client.status.ok()) << client.status.error_message();
        EXPECT_TRUE(client.Say(name, "x", 1).status.ok());
        EXPECT_EQ(client.Get(name).position(), 3u);
        EXPECT_TRUE(client.Close(name).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(SessionClient(server).List().sessions_size(), 0);
  server.ExpectNothingLeft();
}

}  // namespace
}  // namespace quire
