// Streams that are cut and attached to again, over real gRPC: each cut gives what the undisturbed
// stream gives.
// Covers server/detach/attached_reader.cc, server/detach/detach_call.cc,
// server/detach/kept_answer.cc and server/detach/kept_answers.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/h2_client.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using Code = grpc::StatusCode;

constexpr char kTool[] = R"({"type": "function", "function": {"name": "get_time"}})";
constexpr char kTemplate[] = "{% for m in messages %}{{ m.content }}{% endfor %}";

// The contents of frames of tokens, one after the other.
struct Output {
  std::string text, reasoning, calls;
  std::vector<uint32_t> ids;
  std::vector<float> logprobs;
  std::vector<std::string> scores, prompt_scores;

  void Add(const v1::TokenDelta& delta) {
    text += delta.text();
    reasoning += delta.reasoning();
    for (const v1::ToolCallDelta& call : delta.tool_calls()) {
      // Pieces may be cut differently, so a call's head and its arguments are told apart only.
      if (call.has_name()) calls += "|" + std::to_string(call.index()) + call.name() + " ";
      calls += call.arguments();
    }
    ids.insert(ids.end(), delta.token_ids().begin(), delta.token_ids().end());
    logprobs.insert(logprobs.end(), delta.logprobs().begin(), delta.logprobs().end());
    for (const auto& score : delta.scores()) scores.push_back(score.ShortDebugString());
  }
  bool operator==(const Output&) const = default;
};

v1::AttachRequest Behind(const std::string& id, uint32_t after_tokens) {
  v1::AttachRequest request;
  request.set_request_id(id);
  request.set_after_tokens(after_tokens);
  return request;
}

// A call that is read as far as a test likes.
class Reading {
 public:
  Reading(v1::Inference::Stub& stub, const v1::GenerateRequest& request)
      : reader_(stub.Generate(&context_, request)) {}
  Reading(v1::Inference::Stub& stub, const v1::AttachRequest& request,
          const std::string& tenant = "") {
    if (!tenant.empty()) context_.AddMetadata(kTestTenant, tenant);
    reader_ = stub.Attach(&context_, request);
  }

  // Reads until the output has so many tokens; false if it ends before.
  bool ReadTo(uint32_t tokens) {
    while (!accepted || cumulative < tokens) {
      if (!ReadOne()) return false;
    }
    return true;
  }
  bool ReadOne() {
    v1::GenerateResponse frame;
    if (!reader_->Read(&frame)) return false;
    accepted |= frame.has_accepted();
    if (frame.has_accepted()) accepted_frame = frame.accepted();
    if (frame.has_finished()) finished = frame.finished();
    if (!frame.has_tokens()) return true;
    frames.push_back(frame.tokens());
    output.Add(frame.tokens());
    cumulative = frame.tokens().cumulative_tokens();
    return true;
  }
  grpc::Status ReadAll() {
    while (ReadOne()) {
    }
    return reader_->Finish();
  }
  // The client goes away.
  grpc::Status Cancel() {
    context_.TryCancel();
    return reader_->Finish();
  }

  bool accepted = false;
  v1::Accepted accepted_frame;
  std::vector<v1::TokenDelta> frames;
  Output output;
  uint32_t cumulative = 0;
  v1::Finished finished;

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
};

std::vector<int32_t> Script(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  ids.push_back(kTestEos);
  return ids;
}

v1::GenerateRequest Detachable(v1::GenerateRequest request, const std::string& id,
                               double seconds = 60) {
  request.set_request_id(id);
  request.set_detach_seconds(seconds);
  return request;
}

v1::GenerateRequest ChatWithTool() {
  v1::GenerateRequest request;
  v1::ChatMessage* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content("hi");
  request.mutable_chat()->add_tools(kTool);
  request.mutable_output()->set_logprobs(true);
  request.mutable_output()->set_top_logprobs(3);
  return request;
}

// The frames of the undisturbed stream of so many tokens, one for each, and perhaps text at the
// end. A step runs when the token of the last one was read; no other step may take its place, so
// the server is a fresh one.
std::vector<v1::TokenDelta> Undisturbed(const TestServerOptions& options,
                                        const v1::GenerateRequest& request, size_t tokens) {
  TestServer server(options);
  server.gate().Allow(1);
  Reading reading(server.inference(), request);
  for (uint32_t i = 1; i <= tokens && reading.ReadTo(i); ++i) server.gate().Allow(1);
  server.gate().Allow(-1);
  EXPECT_TRUE(reading.ReadAll().ok());
  for (uint32_t i = 0; i < tokens; ++i) {
    EXPECT_EQ(reading.frames.at(i).cumulative_tokens(), i + 1) << "frames hold one token each";
  }
  return reading.frames;
}

Output From(const std::vector<v1::TokenDelta>& frames, size_t begin, size_t end = SIZE_MAX) {
  Output output;
  for (size_t i = begin; i < std::min(end, frames.size()); ++i) output.Add(frames[i]);
  return output;
}

// Cuts the stream at every token while it runs, and goes on; then reads the finished answer from
// behind every token.
void ExpectEveryCutGoesOn(const TestServerOptions& options, const v1::GenerateRequest& request) {
  TestServer server(options);
  const auto tokens = static_cast<uint32_t>(Stream(server.inference(), request).ids.size());
  const std::vector<v1::TokenDelta> whole = Undisturbed(options, request, tokens);
  const Output expected = From(whole, 0);
  ASSERT_GT(tokens, 5u);
  for (uint32_t cut = 0; cut <= tokens; ++cut) {
    const std::string id = "cut-" + std::to_string(cut);
    Reading first(server.inference(), Detachable(request, id));
    ASSERT_TRUE(first.ReadTo(cut)) << "cut at " << cut;
    first.Cancel();
    Reading second(server.inference(), Behind(id, first.cumulative));
    const grpc::Status status = second.ReadAll();
    ASSERT_TRUE(status.ok()) << "cut at " << cut << ": " << status.error_message();
    Output both = first.output;
    for (const v1::TokenDelta& frame : second.frames) both.Add(frame);
    EXPECT_EQ(both, expected) << "cut at " << cut;
    EXPECT_TRUE(second.accepted);
    EXPECT_EQ(second.accepted_frame.detach_seconds(), 60);
    EXPECT_EQ(second.finished.usage().completion_tokens(), tokens);
  }
  Reading kept(server.inference(), Detachable(request, "kept"));
  ASSERT_TRUE(kept.ReadAll().ok());
  for (uint32_t cut = 0; cut <= tokens; ++cut) {
    Reading again(server.inference(), Behind("kept", cut));
    ASSERT_TRUE(again.ReadAll().ok()) << "behind " << cut;
    // Text that the end lets go of belongs to the last token.
    EXPECT_EQ(again.output, From(whole, cut == tokens ? whole.size() : cut)) << "behind " << cut;
    EXPECT_EQ(again.finished.reason(), kept.finished.reason());
    EXPECT_EQ(again.cumulative, cut == tokens ? 0u : tokens);
  }
}

TEST(DetachTest, EveryCutOfPlainTextGoesOn) {
  v1::GenerateRequest request = AskFor(100);
  request.mutable_output()->set_logprobs(true);
  request.mutable_output()->set_top_logprobs(5);
  ExpectEveryCutGoesOn({.script_ids = Script("The quick brown fox")}, request);
}

TEST(DetachTest, EveryCutOfCodePointsOfSeveralBytesGoesOn) {
  // The last one is not finished: the end of the output makes it U+FFFD.
  ExpectEveryCutGoesOn({.script_ids = Script("a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80z\xF0\x9F")},
                       AskFor(100));
}

TEST(DetachTest, EveryCutBesideStopStringsGoesOn) {
  v1::GenerateRequest request = AskFor(100);
  request.mutable_stop()->add_stop("END.");
  const TestServerOptions stops = {.script_ids = Script("some EN EN text ENDE END. behind")};
  ExpectEveryCutGoesOn(stops, request);
  request.mutable_stop()->set_include_stop_in_output(true);
  ExpectEveryCutGoesOn(stops, request);
  // Text that is held back to the end, and is no stop string then.
  const TestServerOptions ends = {.script_ids = Script("some text EN")};
  ExpectEveryCutGoesOn(ends, request);
  request.mutable_stop()->set_max_tokens(12);
  ExpectEveryCutGoesOn(ends, request);
}

TEST(DetachTest, EveryCutOfReasoningAndCallsGoesOn) {
  for (const char* const text :
       {"<think>\nWhich town?\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"get_time\", "
        "\"arguments\": {\"in\": \"Rome\"}}\n</tool_call>",
        "<think>\nhm </thin", "<think>a</think>\n<tool_call>\n{\"name\": \"get_", "  <thi"}) {
    ExpectEveryCutGoesOn({.script_ids = Script(text),
                          .chat_template = kTemplate,
                          .reasoning_parser = "qwen3",
                          .tool_call_parser = "hermes"},
                         ChatWithTool());
  }
}

TEST(DetachTest, ASlowReaderThatComesBackMissesNothing) {
  constexpr uint32_t kTokens = 8000;
  TestServer server({.num_blocks = 4097, .max_model_len = 32768});
  const StreamedOutput whole = Stream(server.inference(), AskFor(kTokens));
  const auto stub = v1::Inference::NewStub(server.NewChannel(/*fixed_window=*/true));
  Reading slow(*stub, Detachable(AskFor(kTokens), "slow"));
  ASSERT_TRUE(slow.ReadTo(100));
  EXPECT_TRUE(TestServer::Eventually([&] { return server.engine().Idle(); }))
      << "it waited for its reader";
  slow.Cancel();
  Reading second(server.inference(), Behind("slow", slow.cumulative));
  ASSERT_TRUE(second.ReadAll().ok());
  EXPECT_EQ(slow.output.text + second.output.text, whole.text);
  EXPECT_EQ(second.cumulative, kTokens);
}

TEST(DetachTest, AConnectionThatVanishesCostsNothing) {
  TestServer server;
  const StreamedOutput whole = Stream(server.inference(), AskFor(50));
  server.gate().Allow(5);
  {
    H2Client client(server.front().port());
    const uint32_t stream = client.AddHeaders("/quire.v1.Inference/Generate");
    client.AddMessage(stream, Detachable(AskFor(50), "lost").SerializeAsString());
    ASSERT_TRUE(client.Send(false));
    client.ReadUntil(whole.text.substr(3, 1));
    client.Vanish();
  }
  EXPECT_TRUE(TestServer::Eventually([&] {
    return server.front().detached_streams() == 1 &&
           server.engine().Stats().generated_tokens >= 50 + 4;
  }));
  server.gate().Allow(-1);
  Reading second(server.inference(), Behind("lost", 2));
  ASSERT_TRUE(second.ReadAll().ok());
  EXPECT_EQ(second.output.text, whole.text.substr(2));
  EXPECT_EQ(server.front().detached_streams(), 0);
}

TEST(DetachTest, AnotherCallTakesTheStreamOver) {
  TestServer server;
  server.gate().Allow(3);
  Reading first(server.inference(), Detachable(AskFor(20), "twice"));
  ASSERT_TRUE(first.ReadTo(3));
  Reading second(server.inference(), Behind("twice", 1));
  const grpc::Status ended = first.ReadAll();
  EXPECT_EQ(ended.error_code(), Code::ABORTED);
  EXPECT_EQ(Reason(ended), "TAKEN_OVER");
  server.gate().Allow(-1);
  ASSERT_TRUE(second.ReadAll().ok());
  EXPECT_EQ(second.output.ids.size(), 19u);
  EXPECT_THAT(server.Metrics(), HasSubstr("quire_attach_total{model_name=\"test-model\","
                                          "result=\"took_over\"} 1"));
  server.ExpectNothingLeft();
}

TEST(DetachTest, ATurnGoesOnAndIsAppendedOnce) {
  TestServer server;
  v1::GenerateRequest turn = AskFor(8);
  turn.set_session_id("s");
  turn.set_create_session(true);
  server.gate().Allow(2);
  Reading first(server.inference(), Detachable(turn, "turn"));
  ASSERT_TRUE(first.ReadTo(2));
  first.Cancel();
  server.gate().Allow(-1);
  Reading second(server.inference(), Behind("turn", 2));
  ASSERT_TRUE(second.ReadAll().ok());
  EXPECT_EQ(second.output.ids.size(), 6u);
  // <s>, "hi" and eight tokens.
  EXPECT_EQ(second.finished.position(), 11u);
  turn.set_expected_position(11);
  EXPECT_TRUE(Stream(server.inference(), turn).status.ok());
}

TEST(DetachTest, WorkersThatDieAndAreNotReplacedEndTheRequestAndSaySo) {
  TestServer server({.ranks = 2});
  server.gate().Allow(4);  // of both ranks together
  Reading first(server.inference(), Detachable(AskFor(500), "dead"));
  ASSERT_TRUE(first.ReadTo(1));
  first.Cancel();
  EXPECT_TRUE(TestServer::Eventually([&] { return server.front().detached_streams() == 1; }));
  server.gate().BreakRanks();
  server.gate().Allow(-1);
  Reading second(server.inference(), Behind("dead", 0));
  const grpc::Status status = second.ReadAll();
  EXPECT_EQ(status.error_code(), Code::INTERNAL) << status.error_message();
  EXPECT_EQ(Reason(status), "ENGINE_FAULT");
  EXPECT_GE(second.output.ids.size(), 1u) << "what was made before is a valid prefix";
}

TEST(DetachTest, ARequestWhoseCallIsLostBeforeItsFirstTokenGoesOn) {
  TestServer server;
  server.gate().Allow(0);
  Reading first(server.inference(), Detachable(AskFor(5), "early"));
  // A call that is lost before the engine has its request ends it.
  EXPECT_TRUE(TestServer::Eventually([&] { return server.Load().running_requests() == 1; }));
  first.Cancel();
  server.gate().Allow(-1);
  Reading second(server.inference(), Behind("early", 0));
  ASSERT_TRUE(second.ReadAll().ok());
  EXPECT_EQ(second.output.ids.size(), 5u);
  server.ExpectNothingLeft();
}

}  // namespace
}  // namespace quire
