// Several answers to one request over real gRPC, with a worker that says the same to all of them:
// frames, ends, sums, refusals, and everything that ends a call early.
// Covers server/answers/answers_call.cc, server/answers/answer_member.cc,
// server/answers/held_answers.cc, engine/values/admission.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::GenerateRequest AskForAnswers(uint32_t n, uint32_t max_tokens, uint32_t best_of = 0) {
  v1::GenerateRequest request = AskFor(max_tokens);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(40);
  request.set_n(n);
  if (best_of > 0) request.set_best_of(best_of);
  return request;
}

struct OneAnswer {
  std::string text;
  uint32_t tokens = 0;
  bool finished = false;
  v1::Finished end;
};

struct AnswersOutput {
  grpc::Status status;
  v1::Accepted accepted;
  std::map<uint32_t, OneAnswer> answers;
  int request_usages = 0;
  v1::Usage request_usage;
  bool in_order = true;  // Accepted first, no gap, nothing behind an answer's end
  std::string kinds;     // of the frames: a, t, f
};

void Take(const v1::GenerateResponse& frame, AnswersOutput* out) {
  if (frame.has_accepted()) {
    out->in_order &= out->kinds.empty();
    out->kinds += 'a';
    out->accepted = frame.accepted();
  } else if (frame.has_tokens()) {
    out->kinds += 't';
    OneAnswer& answer = out->answers[frame.tokens().index()];
    answer.text += frame.tokens().text();
    answer.tokens += static_cast<uint32_t>(frame.tokens().token_ids_size());
    out->in_order &= frame.tokens().has_index() && !answer.finished &&
                     frame.tokens().cumulative_tokens() == answer.tokens;
  } else {
    out->kinds += 'f';
    OneAnswer& answer = out->answers[frame.finished().index()];
    out->in_order &= frame.finished().has_index() && !answer.finished;
    answer.finished = true;
    answer.end = frame.finished();
    if (!frame.finished().has_request_usage()) return;
    ++out->request_usages;
    out->request_usage = frame.finished().request_usage();
  }
}

AnswersOutput Ask(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
                  grpc::ClientContext* context = nullptr) {
  grpc::ClientContext own;
  AnswersOutput out;
  const auto reader = stub.Generate(context != nullptr ? context : &own, request);
  v1::GenerateResponse frame;
  std::set<std::string> ids;
  while (reader->Read(&frame)) {
    if (frame.has_request_id()) ids.insert(frame.request_id());
    Take(frame, &out);
  }
  out.status = reader->Finish();
  EXPECT_EQ(ids.size(), out.status.ok() ? 1u : ids.size()) << "all have the id of the request";
  return out;
}

TEST(AnswersTest, EachHasItsFramesAndItsEnd) {
  TestServer server;  // says abcdefghij, over and over
  const AnswersOutput out = Ask(server.inference(), AskForAnswers(3, 12));
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_TRUE(out.in_order) << out.kinds;
  EXPECT_EQ(out.accepted.n(), 3u);
  EXPECT_EQ(out.accepted.best_of(), 3u);
  EXPECT_EQ(out.accepted.sampling().seed(), 40u);
  ASSERT_EQ(out.answers.size(), 3u);
  for (const auto& [index, answer] : out.answers) {
    EXPECT_EQ(answer.text, "abcdefghijab");
    EXPECT_EQ(answer.end.reason(), v1::FINISH_REASON_MAX_TOKENS);
    EXPECT_EQ(answer.end.seed(), 40u + index);
    EXPECT_EQ(answer.end.usage().prompt_tokens(), 3u);
    EXPECT_EQ(answer.end.usage().completion_tokens(), 12u);
    EXPECT_DOUBLE_EQ(answer.end.mean_logprob(), -6.0);  // token k has -k - 0.5
  }
  EXPECT_EQ(out.request_usages, 1);
  EXPECT_EQ(out.request_usage.prompt_tokens(), 3u);
  EXPECT_EQ(out.request_usage.completion_tokens(), 36u);
  server.ExpectNothingLeft();
}

TEST(AnswersTest, TheLastSeedWrapsAround) {
  TestServer server;
  v1::GenerateRequest request = AskForAnswers(2, 1);
  request.mutable_sampling()->set_seed(~uint64_t{0});
  const AnswersOutput out = Ask(server.inference(), request);
  EXPECT_EQ(out.answers.at(0).end.seed(), ~uint64_t{0});
  EXPECT_EQ(out.answers.at(1).end.seed(), 0u);
}

TEST(AnswersTest, AReplyHasThemInOneMessage) {
  TestServer server;
  v1::GenerateRequest request = AskForAnswers(3, 5);
  request.set_request_id("several");
  request.mutable_output()->set_logprobs(true);
  grpc::ClientContext context;
  v1::GenerateResult result;
  const grpc::Status status = server.inference().GenerateUnary(&context, request, &result);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(result.request_id(), "several");
  EXPECT_EQ(result.accepted().n(), 3u);
  EXPECT_EQ(result.text(), "abcde");
  EXPECT_EQ(result.finished().seed(), 40u);
  EXPECT_EQ(result.finished().request_usage().completion_tokens(), 15u);
  ASSERT_EQ(result.further_answers_size(), 2);
  for (int i = 0; i < 2; ++i) {
    const v1::FurtherAnswer& answer = result.further_answers(i);
    EXPECT_EQ(answer.text(), "abcde");
    EXPECT_EQ(answer.token_ids_size(), 5);
    EXPECT_THAT(answer.logprobs(), ElementsAre(-0.5, -1.5, -2.5, -3.5, -4.5));
    EXPECT_EQ(answer.finished().index(), static_cast<uint32_t>(i) + 1);
    EXPECT_EQ(answer.finished().seed(), 41u + static_cast<uint32_t>(i));
    EXPECT_FALSE(answer.finished().has_request_usage());
  }
  server.ExpectNothingLeft();
}

TEST(AnswersTest, OneAnswerHasNothingOfSeveral) {
  TestServer server;
  v1::GenerateRequest request = AskForAnswers(1, 5, 1);
  const StreamedOutput out = Stream(server.inference(), request);
  ASSERT_TRUE(out.status.ok());
  EXPECT_FALSE(out.finished.has_index() || out.finished.has_seed() ||
               out.finished.has_mean_logprob() || out.finished.has_request_usage());
  EXPECT_FALSE(out.accepted.has_n() || out.frames[1].tokens().has_index());
}

TEST(AnswersTest, TheBestComeWhenAllHaveEnded) {
  TestServer server;
  const AnswersOutput out = Ask(server.inference(), AskForAnswers(2, 7, 5));
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  // One frame of tokens for each; the first may end before those of the second are sent.
  EXPECT_THAT(out.kinds, AnyOf("attff", "atftf"));
  EXPECT_EQ(out.accepted.best_of(), 5u);
  // All are equally likely: the first drawn come first.
  EXPECT_EQ(out.answers.at(0).end.seed(), 40u);
  EXPECT_EQ(out.answers.at(1).end.seed(), 41u);
  EXPECT_EQ(out.request_usages, 1);
  EXPECT_EQ(out.request_usage.completion_tokens(), 35u) << "those that were dropped count";
  EXPECT_EQ(out.request_usage.prompt_tokens(), 3u);
  server.ExpectNothingLeft();
}

TEST(AnswersTest, AcceptanceIsToldBeforeTheBestAreKnown) {
  TestServer server;
  server.gate().Allow(0);
  grpc::ClientContext context;
  const auto reader = server.inference().Generate(&context, AskForAnswers(1, 7, 3));
  v1::GenerateResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  EXPECT_TRUE(frame.has_accepted());
  server.gate().Allow(-1);
  ASSERT_TRUE(reader->Read(&frame));
  EXPECT_EQ(frame.tokens().token_ids_size(), 7);
  ASSERT_TRUE(reader->Read(&frame));
  EXPECT_TRUE(frame.finished().has_request_usage());
  EXPECT_FALSE(reader->Read(&frame));
  EXPECT_TRUE(reader->Finish().ok());
  server.ExpectNothingLeft();
}

TEST(AnswersTest, StopStringsEndEach) {
  TestServer server;
  v1::GenerateRequest request = AskForAnswers(4, 50);
  request.mutable_stop()->add_stop("fg");
  const AnswersOutput out = Ask(server.inference(), request);
  ASSERT_EQ(out.answers.size(), 4u);
  for (const auto& [index, answer] : out.answers) {
    EXPECT_EQ(answer.text, "abcde");
    EXPECT_EQ(answer.end.reason(), v1::FINISH_REASON_STOP_TEXT);
    EXPECT_EQ(answer.end.stop_text(), "fg");
  }
  server.ExpectNothingLeft();
}

TEST(AnswersTest, EachFollowsTheStructure) {
  TestServer server;
  v1::GenerateRequest request = AskForAnswers(3, 20);
  request.mutable_structured_output()->mutable_choice()->add_texts("abx");
  request.mutable_structured_output()->mutable_choice()->add_texts("abcy");
  const AnswersOutput out = Ask(server.inference(), request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  for (const auto& [index, answer] : out.answers) EXPECT_EQ(answer.text, "abcy");
  server.ExpectNothingLeft();
}

TEST(AnswersTest, RunWithoutThePrefixCache) {
  TestServer server;
  v1::GenerateRequest request = AskForAnswers(3, 5);
  request.set_text(std::string(100, 'x'));
  request.set_bypass_prefix_cache(true);
  const AnswersOutput out = Ask(server.inference(), request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  for (const auto& [index, answer] : out.answers) EXPECT_EQ(answer.text, "abcde");
  EXPECT_EQ(out.request_usage.cached_tokens(), 0u);
  EXPECT_EQ(server.engine().Stats().prompt_tokens, 3 * 101u);
  server.ExpectNothingLeft();
}

TEST(AnswersTest, ThePromptIsComputedOnce) {
  TestServer server;
  v1::GenerateRequest request = AskForAnswers(4, 5);
  request.set_text(std::string(100, 'x'));  // 101 tokens: 6 blocks of 16, and 5
  const AnswersOutput out = Ask(server.inference(), request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(server.engine().Stats().prompt_tokens, 101u + 3 * 5);
  EXPECT_EQ(out.answers.at(0).end.usage().cached_tokens(), 0u);
  EXPECT_EQ(out.answers.at(3).end.usage().cached_tokens(), 96u);
  EXPECT_EQ(out.request_usage.cached_tokens(), 0u);
  server.ExpectNothingLeft();
}

struct Refused {
  const char* name;
  std::function<void(v1::GenerateRequest&)> spoil;
  const char* field;
  const char* message;
};

TEST(AnswersTest, ContradictionsAreRefusedByName) {
  TestServerOptions options;
  options.max_num_seqs = 16;
  options.num_blocks = 65;  // 1024 tokens
  TestServer server(options);
  const std::vector<Refused> cases = {
      {"none", [](auto& r) { r.set_n(0); }, "n", "at least 1"},
      {"best_of none", [](auto& r) { r.set_best_of(0); }, "best_of", "at least n, which is 2"},
      {"best_of below n", [](auto& r) { r.set_n(3), r.set_best_of(2); }, "best_of",
       "at least n, which is 3, not 2"},
      {"rows", [](auto& r) { r.set_n(17); }, "n", "at most 16, the requests that run at once"},
      {"rows of best_of", [](auto& r) { r.set_best_of(1000); }, "best_of", "at most 16"},
      {"session", [](auto& r) { r.set_session_id("s"), r.set_create_session(true); }, "n",
       "session_id"},
      {"greedy", [](auto& r) { r.mutable_sampling()->set_temperature(0); }, "n", "temperature 0"},
      {"pool", [](auto& r) { r.set_n(10), r.mutable_stop()->set_max_tokens(120); }, "n",
       "10 answers of up to 120 tokens to a prompt of 3 need 1280 tokens"},
      {"pool of best_of", [](auto& r) { r.set_best_of(10), r.mutable_stop()->set_max_tokens(120); },
       "best_of", "the server has 1024"},
      {"prompts without the cache",
       [](auto& r) {
         r.set_n(8), r.set_text(std::string(120, 'x')), r.set_bypass_prefix_cache(true);
         r.mutable_stop()->set_max_tokens(10);
       },
       "n", "KV cache"},
      {"usual refusals", [](auto& r) { r.mutable_sampling()->set_top_p(2); }, "sampling.top_p",
       "must be"},
      {"prompt", [](auto& r) { r.set_text(std::string(3000, 'x')); }, "prompt", "3001 tokens"},
  };
  for (const Refused& refused : cases) {
    v1::GenerateRequest request = AskForAnswers(2, 5);
    refused.spoil(request);
    const AnswersOutput out = Ask(server.inference(), request);
    EXPECT_EQ(out.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << refused.name;
    EXPECT_EQ(ViolatedField(out.status), refused.field) << refused.name;
    EXPECT_THAT(out.status.error_message(), HasSubstr(refused.message)) << refused.name;
    EXPECT_EQ(out.kinds, "");
    grpc::ClientContext context;
    v1::GenerateResult result;
    const grpc::Status status = server.inference().GenerateUnary(&context, request, &result);
    EXPECT_EQ(status.error_message(), out.status.error_message()) << refused.name;
  }
  EXPECT_EQ(server.engine().Stats().prompt_tokens, 0u);
  server.ExpectNothingLeft();
}

// They share the prompt's 7 full blocks: 7 + 8 * 2 of 64.
TEST(AnswersTest, APromptThatIsSharedFitsWhereItsCopiesDoNot) {
  TestServerOptions options;
  options.num_blocks = 65;
  TestServer server(options);
  v1::GenerateRequest request = AskForAnswers(8, 10);
  request.set_text(std::string(120, 'x'));
  const AnswersOutput out = Ask(server.inference(), request);
  EXPECT_TRUE(out.status.ok()) << out.status.error_message();
  server.ExpectNothingLeft();
}

// Of 61 tokens each, up to the end of the context: four at a time, at most.
TEST(AnswersTest, TakeTurnsWhereADefaultLengthDoesNotFitTogether) {
  TestServerOptions options;
  options.num_blocks = 17;
  options.max_model_len = 64;
  TestServer server(options);
  v1::GenerateRequest request = AskForAnswers(12, 1);
  request.mutable_stop()->clear_max_tokens();
  const AnswersOutput out = Ask(server.inference(), request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_TRUE(out.in_order);
  ASSERT_EQ(out.answers.size(), 12u);
  for (const auto& [index, answer] : out.answers) {
    EXPECT_EQ(answer.tokens, 61u);
    EXPECT_EQ(answer.end.reason(), v1::FINISH_REASON_CONTEXT_LIMIT);
  }
  server.ExpectNothingLeft();
}

// A call that has begun, with a slow worker.
struct Begun {
  Begun(TestServer& server, const v1::GenerateRequest& request, int64_t steps) : server(server) {
    server.gate().Allow(steps);
    reader = server.inference().Generate(&context, request);
    EXPECT_TRUE(reader->Read(&frame));
    EXPECT_TRUE(frame.has_accepted());
  }
  grpc::Status Finish() {
    while (reader->Read(&frame)) {
    }
    server.gate().Allow(-1);
    return reader->Finish();
  }
  TestServer& server;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
  v1::GenerateResponse frame;
};

TEST(AnswersTest, ACancelEndsAll) {
  for (const uint32_t best_of : {4u, 6u}) {
    TestServer server;
    for (int64_t steps = 0; steps < 6; ++steps) {
      Begun call(server, AskForAnswers(4, 100, best_of), steps);
      call.context.TryCancel();
      EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::CANCELLED);
      server.ExpectNothingLeft();
    }
  }
}

TEST(AnswersTest, AnAbortEndsAll) {
  for (const uint32_t best_of : {4u, 6u}) {
    TestServer server;
    v1::GenerateRequest request = AskForAnswers(4, 100, best_of);
    request.set_request_id("mine");
    Begun call(server, request, 3);
    grpc::ClientContext context;
    v1::AbortRequest abort;
    abort.add_request_ids("mine");
    v1::AbortResponse aborted;
    ASSERT_TRUE(server.control().Abort(&context, abort, &aborted).ok());
    const grpc::Status status = call.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
    EXPECT_EQ(Reason(status), "ABORTED");
    server.ExpectNothingLeft();
  }
}

// The id is the request's until the last answer has ended.
TEST(AnswersTest, AnAbortFindsAnswersBehindTheFirst) {
  for (const uint32_t best_of : {2u, 3u}) {
    TestServer server;
    TenantTable table;
    table.defaults.max_running_requests = 1;
    ASSERT_TRUE(server.engine().SetTenants(table).ok());
    v1::GenerateRequest request = AskForAnswers(2, 5, best_of);
    request.set_request_id("mine");
    Begun call(server, request, 8);  // the first ends, the second does not
    EXPECT_TRUE(
        TestServer::Eventually([&] { return server.engine().Stats().generated_tokens >= 6; }));
    grpc::ClientContext context;
    v1::AbortRequest abort;
    abort.add_request_ids("mine");
    v1::AbortResponse aborted;
    ASSERT_TRUE(server.control().Abort(&context, abort, &aborted).ok());
    EXPECT_EQ(Reason(call.Finish()), "ABORTED");
    server.ExpectNothingLeft();
  }
}

TEST(AnswersTest, ADeadlineEndsAll) {
  for (const uint32_t best_of : {4u, 6u}) {
    TestServer server;
    server.gate().Allow(3);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
    const AnswersOutput out = Ask(server.inference(), AskForAnswers(4, 500, best_of), &context);
    EXPECT_EQ(out.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    server.gate().Allow(-1);
    server.ExpectNothingLeft();
  }
}

TEST(AnswersTest, AFailureOfOneEndsAll) {
  for (const uint32_t best_of : {4u, 6u}) {
    TestServer server;
    Begun call(server, AskForAnswers(4, 100, best_of), 4);
    server.gate().SpoilSamples();
    server.gate().Allow(-1);
    const grpc::Status status = call.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL) << status.error_message();
    server.ExpectNothingLeft();
  }
}

TEST(AnswersTest, AHeldReplyHasABound) {
  for (const bool unary : {false, true}) {
    TestServerOptions options;
    options.front.max_reply_bytes = 80 << 10;
    options.num_blocks = 2049;
    TestServer server(options);
    // 8 draws of 5 bytes a token exceed what 64 KiB and 1 KiB each leave of it.
    const v1::GenerateRequest request = AskForAnswers(unary ? 8 : 2, 1000, 8);
    grpc::Status status;
    if (unary) {
      grpc::ClientContext context;
      v1::GenerateResult result;
      status = server.inference().GenerateUnary(&context, request, &result);
    } else {
      status = Ask(server.inference(), request).status;
    }
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("fewer answers"));
    server.ExpectNothingLeft();
  }
}

// The bound of unsent output is that of the call: each answer has its part.
TEST(AnswersTest, ASlowReaderPausesAllAndLosesNothing) {
  TestServerOptions options;
  options.num_blocks = 8193;
  options.max_model_len = 16384;
  options.front.stream_buffer_bytes = 256 << 10;
  TestServer server(options);
  grpc::ClientContext context;
  const auto stub = v1::Inference::NewStub(server.NewChannel(/*fixed_window=*/true));
  constexpr uint32_t kTokens = 16'000;
  const auto reader = stub->Generate(&context, AskForAnswers(8, kTokens));
  EXPECT_TRUE(TestServer::Eventually([&] { return server.engine().Stats().load.paused == 8; }));
  // They pause at 128 KiB of unsent output, 26,214 tokens of 5 bytes, and 64 KiB or two are under
  // way in the window, where a token takes 3 bytes or more: 43,690 tokens. With 256 KiB for each
  // answer they would not pause at all. A busy machine makes some thousand tokens more before it
  // pauses them.
  EXPECT_LT(server.engine().Stats().generated_tokens, 120'000u);
  AnswersOutput out;
  v1::GenerateResponse frame;
  while (reader->Read(&frame)) Take(frame, &out);
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(out.in_order);
  ASSERT_EQ(out.answers.size(), 8u);
  for (const auto& [index, answer] : out.answers) EXPECT_EQ(answer.tokens, kTokens);
  server.ExpectNothingLeft();
}

// Held answers are not taken for those of a reader that has stopped.
TEST(AnswersTest, AnAnswerThatWaitsForOthersIsNotShed) {
  TestServerOptions options;
  options.front.slow_reader_timeout_seconds = 1;
  options.max_num_seqs = 4;
  TestServer server(options);
  TenantTable table;
  table.defaults.max_running_requests = 1;
  ASSERT_TRUE(server.engine().SetTenants(table).ok());
  server.gate().Allow(8);  // the first ends, the second does not
  grpc::ClientContext context;
  const auto reader = server.inference().Generate(&context, AskForAnswers(1, 5, 2));
  EXPECT_TRUE(
      TestServer::Eventually([&] { return server.engine().Stats().generated_tokens >= 6; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  server.gate().Allow(-1);
  AnswersOutput out;
  v1::GenerateResponse frame;
  while (reader->Read(&frame)) Take(frame, &out);
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(out.answers.at(0).text, "abcde");
  server.ExpectNothingLeft();
}

TEST(AnswersTest, CountAsRequestsOfTheirTenant) {
  TestServer server;
  TenantTable table;
  table.defaults.max_queued_requests = 6;
  table.defaults.max_running_requests = 1;
  ASSERT_TRUE(server.engine().SetTenants(table).ok());
  Begun first(server, AskForAnswers(4, 5), 0);
  const v1::Load load = server.Load();  // one request may begin to run between two of them
  EXPECT_EQ(load.waiting_requests() + load.running_requests(), 4u);
  const AnswersOutput out = Ask(server.inference(), AskForAnswers(4, 5));
  EXPECT_EQ(out.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reason(out.status), "TENANT_LIMIT");
  server.gate().Allow(-1);
  EXPECT_TRUE(first.Finish().ok());
  server.ExpectNothingLeft();
}

TEST(AnswersTest, TheQueueTakesAllOrNone) {
  TestServerOptions options;
  options.max_num_queued_reqs = 3;
  TestServer server(options);
  const AnswersOutput out = Ask(server.inference(), AskForAnswers(4, 5));
  EXPECT_EQ(out.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Reason(out.status), "QUEUE_FULL");
  EXPECT_TRUE(Ask(server.inference(), AskForAnswers(3, 5)).status.ok());
  server.ExpectNothingLeft();
}

}  // namespace
}  // namespace quire
