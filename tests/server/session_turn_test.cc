// Turns of sessions over real gRPC: a turn appends its prompt and output and reports the position;
// a turn that is refused, cancelled or fails leaves the session as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/server/session_client.h"

namespace quire {
namespace {

using Sessions = v1::Sessions::Stub;
using grpc::StatusCode;

v1::GenerateRequest TurnOf(const std::string& session, const std::string& text,
                           uint32_t max_tokens = 5) {
  v1::GenerateRequest request = AskFor(max_tokens);
  request.set_text(text);
  request.set_session_id(session);
  return request;
}

TEST(TurnTest, AppendsPromptAndOutputWithoutBosBetween) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  StreamedOutput out = client.Say("a", "hello", 5);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.accepted.prompt_tokens(), 6u);  // <s> and five bytes
  EXPECT_EQ(out.finished.usage().prompt_tokens(), 6u);
  EXPECT_EQ(out.finished.usage().completion_tokens(), 5u);
  EXPECT_EQ(out.finished.position(), 11u);
  EXPECT_EQ(out.finished.residency().outcome(), v1::Residency::OUTCOME_NONE);
  // Eleven, and three bytes.
  out = client.Say("a", "you", 4);
  EXPECT_EQ(out.finished.usage().prompt_tokens(), 14u);
  EXPECT_EQ(out.finished.position(), 18u);
  EXPECT_EQ(client.Get("a").position(), 18u);
  EXPECT_EQ(client.Get("a").turns(), 2u);
  // Token ids are appended as they are, also to an empty session.
  client.Create("ids");
  v1::GenerateRequest ids = TurnOf("ids", "");
  ids.mutable_token_ids()->add_ids('x');
  EXPECT_EQ(client.Turn(ids).finished.position(), 6u);
  // Nor is there a BOS where the client wants none.
  client.Create("bare");
  v1::GenerateRequest bare = TurnOf("bare", "hello");
  bare.set_add_special_tokens(false);
  EXPECT_EQ(client.Turn(bare).accepted.prompt_tokens(), 5u);
}

TEST(TurnTest, GenerateUnaryIsATurnToo) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  v1::GenerateRequest request = TurnOf("a", "hello");
  for (const uint32_t position : {11u, 21u}) {
    grpc::ClientContext context;
    v1::GenerateResult result;
    ASSERT_TRUE(server.inference().GenerateUnary(&context, request, &result).ok());
    EXPECT_EQ(result.finished().position(), position);
    EXPECT_TRUE(result.finished().has_residency());
  }
}

TEST(TurnTest, KnownTokensAreNotComputedAgain) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  client.Say("a", std::string(99, 'x'), 10);
  const v1::Finished finished = client.Say("a", "more", 3).finished;
  // 100 and ten tokens; the last one sampled was never computed.
  EXPECT_EQ(finished.usage().prompt_tokens(), 114u);
  EXPECT_EQ(finished.usage().cached_tokens(), 109u);
  EXPECT_EQ(finished.residency().outcome(), v1::Residency::OUTCOME_DEVICE);
  EXPECT_EQ(finished.residency().device_tokens(), 109u);
  EXPECT_EQ(finished.residency().host_tokens(), 0u);
  EXPECT_EQ(finished.residency().recomputed_tokens(), 0u);
}

TEST(TurnTest, AFirstTurnMayCreateItsSession) {
  TestServer server;
  SessionClient client(server);
  v1::GenerateRequest request = TurnOf("new", "hello");
  EXPECT_EQ(Reason(client.Turn(request).status), "SESSION_NOT_FOUND");
  request.set_create_session(true);
  EXPECT_EQ(client.Turn(request).finished.position(), 11u);
  EXPECT_EQ(client.Turn(request).finished.position(), 21u);
  // A turn that is refused leaves no session behind.
  request.set_session_id("unborn");
  request.mutable_stop()->set_max_tokens(100000);
  EXPECT_EQ(ViolatedField(client.Turn(request).status), "stop.max_tokens");
  request.mutable_stop()->set_max_tokens(5);
  request.set_expected_position(3);
  EXPECT_EQ(Reason(client.Turn(request).status), "WRONG_POSITION");
  request.clear_expected_position();
  request.set_text("");
  request.set_add_special_tokens(false);
  EXPECT_EQ(ViolatedField(client.Turn(request).status), "text");
  EXPECT_EQ(client.List().sessions_size(), 1);
}

TEST(TurnTest, ARefusalNamesTheTruePosition) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  v1::GenerateRequest request = TurnOf("a", "hello");
  request.set_expected_position(0);
  EXPECT_EQ(client.Turn(request).finished.position(), 11u);
  for (const uint32_t wrong : {0u, 10u, 12u, 4000000000u}) {
    request.set_expected_position(wrong);
    const grpc::Status status = client.Turn(request).status;
    EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION) << wrong;
    EXPECT_EQ(Reason(status), "WRONG_POSITION");
    EXPECT_EQ(Fact(status, "position"), "11");
    EXPECT_EQ(status.error_message(),
              "session \"a\" is at position 11, not at " + std::to_string(wrong));
  }
  request.set_expected_position(11);
  EXPECT_EQ(client.Turn(request).finished.position(), 21u);
}

TEST(TurnTest, FieldsThatContradictAreRefused) {
  TestServer server;
  SessionClient client(server);
  v1::GenerateRequest request = AskFor(2);
  request.set_expected_position(0);
  EXPECT_EQ(ViolatedField(client.Turn(request).status), "expected_position");
  request = AskFor(2);
  request.set_create_session(true);
  EXPECT_EQ(ViolatedField(client.Turn(request).status), "create_session");
  request = TurnOf("a", "x");
  request.set_bypass_prefix_cache(true);
  EXPECT_EQ(ViolatedField(client.Turn(request).status), "bypass_prefix_cache");
}

TEST(TurnTest, BypassNeitherUsesNorLeavesAnything) {
  TestServer server;
  SessionClient client(server);
  v1::GenerateRequest request = AskFor(2);
  request.set_text(std::string(64, 'x'));
  request.set_bypass_prefix_cache(true);
  EXPECT_EQ(client.Turn(request).finished.usage().cached_tokens(), 0u);
  EXPECT_EQ(client.Turn(request).finished.usage().cached_tokens(), 0u);
  request.set_bypass_prefix_cache(false);
  EXPECT_EQ(client.Turn(request).finished.usage().cached_tokens(), 0u);
  EXPECT_EQ(client.Turn(request).finished.usage().cached_tokens(), 64u);
  request.set_bypass_prefix_cache(true);
  const v1::Finished finished = client.Turn(request).finished;
  EXPECT_EQ(finished.usage().cached_tokens(), 0u);
  EXPECT_EQ(finished.residency().outcome(), v1::Residency::OUTCOME_NONE);
}

// A turn that runs for as long as the test lets it.
class RunningTurn {
 public:
  RunningTurn(TestServer& server, const std::string& session) : server_(server) {
    server_.gate().Allow(3);
    thread_ = std::thread([this, session] {
      out_ = Stream(server_.inference(), TurnOf(session, "slow", 1000), &context_);
    });
    SessionClient client(server);
    EXPECT_TRUE(TestServer::Eventually(
        [&] { return client.Get(session).state() == v1::SESSION_STATE_ACTIVE; }));
  }
  ~RunningTurn() { Cancel(); }
  StreamedOutput Cancel() {
    context_.TryCancel();
    // Else the turn may end before the server knows of the cancel.
    EXPECT_TRUE(TestServer::Eventually([&] { return server_.front().open_streams() == 0; }));
    server_.gate().Allow(-1);
    if (thread_.joinable()) thread_.join();
    return out_;
  }

 private:
  TestServer& server_;
  grpc::ClientContext context_;
  StreamedOutput out_;
  std::thread thread_;
};

TEST(TurnTest, ABusySessionRefusesEveryChange) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  client.Say("a", "hello", 5);
  RunningTurn turn(server, "a");
  const auto expect = [&] {
    EXPECT_EQ(client.status.error_code(), StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(Reason(client.status), "SESSION_BUSY") << client.status.error_message();
  };
  client.Say("a", "me too"), expect();
  client.Fork("a", "b"), expect();
  client.Truncate("a", 3), expect();
  client.Close("a"), expect();
  client.Export("a"), expect();
  EXPECT_EQ(client.Get("a").position(), 11u);
  EXPECT_EQ(turn.Cancel().status.error_code(), StatusCode::CANCELLED);
  // Once the cancel has arrived everywhere the session is as it was, and the turn can be resent.
  EXPECT_TRUE(TestServer::Eventually([&] { return client.Say("a", "me too", 2).status.ok(); }));
  EXPECT_EQ(client.Get("a").position(), 11u + 6 + 2);
  EXPECT_EQ(client.List().sessions_size(), 1);
  server.ExpectNothingLeft();
}

TEST(TurnTest, ACancelledTurnLeavesTheSessionAsItWas) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  client.Say("a", "hello", 5);
  { RunningTurn turn(server, "a"); }
  EXPECT_TRUE(
      TestServer::Eventually([&] { return client.Get("a").state() != v1::SESSION_STATE_ACTIVE; }));
  EXPECT_EQ(client.Get("a").position(), 11u);
  EXPECT_EQ(client.Get("a").turns(), 1u);
  EXPECT_EQ(client.Say("a", "xyz", 2).finished.position(), 16u);
}

// A client that has read the end of a turn may send the next turn at once: the end and the next
// begin cannot cross.
TEST(TurnTest, TheNextTurnMayFollowAtOnce) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  uint32_t position = 1;
  for (int turn = 0; turn < 200; ++turn) {
    v1::GenerateRequest request = TurnOf("a", "x", 1 + turn % 4);
    if (turn > 0) request.set_expected_position(position);
    const StreamedOutput out = client.Turn(request);
    ASSERT_TRUE(out.status.ok()) << out.status.error_message();
    position += 2 + turn % 4;
    EXPECT_EQ(out.finished.position(), position);
  }
}

// A request that the engine refuses at once opens no turn.
TEST(TurnTest, ATurnThatTheEngineRefusesLeavesTheSessionFree) {
  TestServerOptions options;
  options.max_num_seqs = 1;
  options.max_num_queued_reqs = 1;
  TestServer server(options);
  SessionClient client(server);
  for (const char* name : {"a", "b", "c"}) client.Create(name);
  server.gate().Allow(2);
  std::thread first([&] { Stream(server.inference(), TurnOf("a", "x", 20)); });
  EXPECT_TRUE(TestServer::Eventually([&] { return server.Load().running_requests() == 1; }));
  std::thread second([&] { Stream(server.inference(), TurnOf("b", "x", 20)); });
  EXPECT_TRUE(TestServer::Eventually([&] { return server.Load().waiting_requests() == 1; }));
  EXPECT_EQ(Reason(client.Say("c", "x").status), "QUEUE_FULL");
  EXPECT_EQ(Reason(client.Say("c", "x").status), "QUEUE_FULL");
  // The queue comes before the session (docs/errors.md).
  EXPECT_EQ(Reason(client.Say("unknown", "x").status), "QUEUE_FULL");
  server.gate().Allow(-1);
  first.join();
  second.join();
  EXPECT_EQ(client.Say("c", "x", 1).finished.position(), 3u);
  EXPECT_EQ(client.Get("a").position(), 22u);
}

TEST(TurnTest, AFullSessionSaysSo) {
  TestServerOptions options;
  options.max_model_len = 32;
  TestServer server(options);
  SessionClient client(server);
  client.Create("a");
  v1::GenerateRequest open_end = TurnOf("a", "hello");
  open_end.clear_stop();
  const v1::Finished finished = client.Turn(open_end).finished;
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_CONTEXT_LIMIT);
  EXPECT_EQ(finished.position(), 32u);
  const grpc::Status status = client.Say("a", "more").status;
  EXPECT_EQ(status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Reason(status), "SESSION_FULL");
  EXPECT_EQ(client.Truncate("a", 20).position(), 20u);
  const grpc::Status long_one = client.Say("a", std::string(12, 'x')).status;
  EXPECT_EQ(ViolatedField(long_one), "prompt");
  EXPECT_THAT(long_one.error_message(), testing::HasSubstr("truncate the session"));
  EXPECT_EQ(client.Say("a", "xyz", 2).finished.position(), 25u);
}

// Text behind a stop string was computed but never sent, so the session does not keep it.
TEST(TurnTest, AStopStringEndsTheSessionsTextToo) {
  TestServer server;
  SessionClient client(server);
  for (const uint32_t max_tokens : {5u, 6u, 7u, 1000u}) {
    client.Create("a");
    v1::GenerateRequest request = TurnOf("a", "hello", max_tokens);
    request.mutable_stop()->add_stop("cde");
    const StreamedOutput out = client.Turn(request);
    ASSERT_TRUE(out.status.ok()) << out.status.error_message();
    EXPECT_EQ(out.text, "ab");
    EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_STOP_TEXT);
    EXPECT_EQ(out.finished.usage().completion_tokens(), 5u);
    EXPECT_EQ(out.finished.position(), 11u) << max_tokens;
    EXPECT_EQ(client.Get("a").position(), 11u) << max_tokens;
    request.set_expected_position(11);
    EXPECT_EQ(client.Turn(request).finished.position(), 21u);
    EXPECT_TRUE(client.Close("a").ok());
  }
}

TEST(TurnTest, AChatReplacesTheSessionByTheRenderedConversation) {
  TestServerOptions options;
  options.chat_template =
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  TestServer server(options);
  SessionClient client(server);
  client.Create("a");
  v1::GenerateRequest request = TurnOf("a", "", 10);
  const auto add = [&](const std::string& role, const std::string& content) {
    v1::ChatMessage* message = request.mutable_chat()->add_messages();
    message->set_role(role);
    message->set_content(content);
  };
  add("user", "What is the answer?");
  const StreamedOutput first = client.Turn(request);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  const uint32_t prompt = 6 + 19 + 11;
  EXPECT_EQ(first.finished.position(), prompt + 10);
  add("assistant", first.text);
  add("user", "And why?");
  const StreamedOutput second = client.Turn(request);
  EXPECT_EQ(second.finished.usage().prompt_tokens(), prompt + 10 + 6 + 8 + 11);
  EXPECT_GE(second.finished.usage().cached_tokens(), 32u);
  EXPECT_EQ(second.finished.position(), prompt + 10 + 6 + 8 + 11 + 10);
  // The client edited the beginning: the session now has the tokens that were sent last.
  request.mutable_chat()->mutable_messages(0)->set_content("What?");
  const StreamedOutput third = client.Turn(request);
  EXPECT_EQ(third.finished.position(), prompt - 14 + 10 + 6 + 8 + 11 + 10);
  EXPECT_EQ(client.Get("a").position(), third.finished.position());
}

// A turn that passes its deadline, is aborted, or fails in any other way frees its session.
TEST(TurnTest, EveryBadEndFreesTheSession) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  client.Say("a", "hello", 5);
  const auto expect_free = [&] {
    server.gate().Allow(-1);
    EXPECT_TRUE(TestServer::Eventually(
        [&] { return client.Get("a").state() != v1::SESSION_STATE_ACTIVE; }));
    EXPECT_EQ(client.Get("a").position(), 11u);
  };
  {
    server.gate().Allow(2);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
    EXPECT_EQ(Stream(server.inference(), TurnOf("a", "x", 1000), &context).status.error_code(),
              StatusCode::DEADLINE_EXCEEDED);
    expect_free();
  }
  {
    server.gate().Allow(2);
    v1::GenerateRequest request = TurnOf("a", "x", 1000);
    request.set_request_id("r");
    grpc::Status status;
    std::thread reader([&] { status = Stream(server.inference(), request).status; });
    EXPECT_TRUE(TestServer::Eventually([&] { return server.Load().running_requests() == 1; }));
    grpc::ClientContext context;
    v1::AbortRequest abort;
    abort.add_request_ids("r");
    v1::AbortResponse aborted;
    EXPECT_TRUE(server.control().Abort(&context, abort, &aborted).ok());
    reader.join();
    EXPECT_EQ(Reason(status), "ABORTED");
    expect_free();
  }
  {
    v1::GenerateRequest request = TurnOf("a", "x", 5);
    request.set_request_id("r");
    server.gate().SpoilSamples();
    EXPECT_EQ(Reason(client.Turn(request).status), "NUMERIC");
    expect_free();
  }
  server.ExpectNothingLeft();
}

// The session has the whole turn or nothing of it: a turn may end before its cancel arrives.
TEST(TurnTest, ACancelAtAnyMomentKeepsTheWholeTurnOrNothing) {
  TestServer server;
  SessionClient client(server);
  client.Create("a");
  uint32_t position = 0;
  for (int round = 0; round < 60; ++round) {
    grpc::ClientContext context;
    const auto reader = server.inference().Generate(&context, TurnOf("a", "x", 1000));
    std::this_thread::sleep_for(std::chrono::microseconds(round * 37));
    context.TryCancel();
    reader->Finish();
    EXPECT_TRUE(TestServer::Eventually(
        [&] { return client.Get("a").state() != v1::SESSION_STATE_ACTIVE; }));
    const uint32_t now = client.Get("a").position();
    const uint32_t prompt = position == 0 ? 2 : 1;  // the first has a BOS
    EXPECT_TRUE(now == position || now == position + prompt + 1000) << position << " " << now;
    position = now;
  }
  server.ExpectNothingLeft();
}

}  // namespace
}  // namespace quire
