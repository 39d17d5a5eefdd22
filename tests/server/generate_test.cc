// Generate and GenerateUnary over real gRPC, as a well-behaved client sees them.
// Covers server/generate/generate_call.cc, server/generate/call_opening.cc,
// server/generate/generation_stream.cc, server/generate/output_shards.cc,
// server/generate/stream_table.cc, server/generate/generate_frames.cc,
// server/generate/quire_format.cc, server/generate/refusals.cc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "engine/values/sampling_fields.h"
#include "server/call/sampling_codec.h"
#include "tests/server/h2_client.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::vector<uint32_t> Bytes(const std::string& text) {
  std::vector<uint32_t> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

std::string Repeat(const std::string& text, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += text;
  return out.substr(0, bytes);
}

TEST(GenerateTest, NoStopStringEndsBeforeMinTokens) {
  TestServer server;  // says abcdefghij, over and over
  v1::GenerateRequest request = AskFor(50);
  request.mutable_stop()->add_stop("bc");
  request.mutable_stop()->set_min_tokens(5);
  const StreamedOutput out = Stream(server.inference(), request);
  ASSERT_TRUE(out.status.ok());
  EXPECT_EQ(out.text, "abcdefghija");
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_STOP_TEXT);
}

TEST(GenerateTest, WithoutMaxTokensARequestEndsAtTheContext) {
  TestServerOptions options;
  options.max_model_len = 64;
  TestServer server(options);
  v1::GenerateRequest request;
  request.set_text("hi");
  const StreamedOutput out = Stream(server.inference(), request);
  EXPECT_EQ(out.ids.size(), 61u);  // 64 without <s>hi
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_CONTEXT_LIMIT);
}

TEST(GenerateTest, TheLongestDeadlineIsNotOneThatHasPassed) {
  TestServer server;
  for (const auto& timeout : {"2562047H", "99999999H", "99999999S"}) {
    H2Client client(server.front().port());
    const uint32_t stream =
        client.AddHeaders("/quire.v1.Inference/Generate", {{"grpc-timeout", timeout}});
    client.AddMessage(stream, AskFor(7).SerializeAsString());
    const uint64_t before = server.engine().Stats().generated_tokens;
    ASSERT_TRUE(client.Send(true));
    EXPECT_TRUE(TestServer::Eventually([&] {
      return server.engine().Stats().generated_tokens == before + 7;
    })) << timeout;
  }
  server.ExpectNothingLeft();
}

TEST(GenerateTest, StreamsAcceptedThenTokensThenFinished) {
  TestServer server;
  const StreamedOutput out = Stream(server.inference(), AskFor(25));
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  ASSERT_GE(out.frames.size(), 3u);
  EXPECT_TRUE(out.frames.front().has_accepted());
  EXPECT_TRUE(out.frames.back().has_finished());
  for (size_t i = 1; i + 1 < out.frames.size(); ++i) EXPECT_TRUE(out.frames[i].has_tokens());
  EXPECT_THAT(out.frames.front().request_id(), MatchesRegex("q[0-9a-f]+-[0-9]+"));
  EXPECT_EQ(out.frames.back().request_id(), out.frames.front().request_id());
  EXPECT_EQ(out.text, "abcdefghijabcdefghijabcde");
  EXPECT_EQ(out.ids, Bytes(out.text));
  EXPECT_TRUE(out.gap_free);
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_MAX_TOKENS);
  EXPECT_EQ(out.finished.usage().prompt_tokens(), 3u);  // <s> h i
  EXPECT_EQ(out.finished.usage().completion_tokens(), 25u);
  EXPECT_GT(out.finished.timings().total_seconds(), 0.0);
  EXPECT_GE(out.finished.timings().total_seconds(), out.finished.timings().first_token_seconds());
  server.ExpectNothingLeft();
}

TEST(GenerateTest, UnaryGivesTheStreamsContentInOneMessage) {
  TestServer server;
  v1::GenerateRequest request = AskFor(40);
  request.set_request_id("the-id:1");
  request.mutable_sampling()->set_seed(7);
  request.mutable_output()->set_logprobs(true);
  const StreamedOutput streamed = Stream(server.inference(), request);
  grpc::ClientContext context;
  v1::GenerateResult result;
  const grpc::Status status = server.inference().GenerateUnary(&context, request, &result);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(result.request_id(), "the-id:1");
  EXPECT_EQ(result.text(), streamed.text);
  EXPECT_EQ(std::vector<uint32_t>(result.token_ids().begin(), result.token_ids().end()),
            streamed.ids);
  EXPECT_EQ(std::vector<float>(result.logprobs().begin(), result.logprobs().end()),
            streamed.logprobs);
  EXPECT_EQ(result.accepted().SerializeAsString(), streamed.accepted.SerializeAsString());
  EXPECT_EQ(result.finished().reason(), streamed.finished.reason());
  EXPECT_EQ(result.finished().usage().completion_tokens(), 40u);
  ASSERT_EQ(streamed.logprobs.size(), 40u);
  EXPECT_FLOAT_EQ(streamed.logprobs[3], -3.5f);
  server.ExpectNothingLeft();
}

TEST(GenerateTest, EchoesDefaultsOfTheModelAndEffectiveValues) {
  TestServerOptions options;
  options.generation.temperature = 0.7f;
  options.generation.top_k = 20;
  options.generation.top_p = 0.9f;
  options.generation.repetition_penalty = 1.1f;
  options.generation.max_new_tokens = 5;
  TestServer server(options);
  v1::GenerateRequest request;
  request.set_text("hi");
  StreamedOutput out = Stream(server.inference(), request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.accepted.model(), "test-model");
  EXPECT_EQ(out.accepted.prompt_tokens(), 3u);
  EXPECT_FLOAT_EQ(out.accepted.sampling().temperature(), 0.7f);
  EXPECT_EQ(out.accepted.sampling().top_k(), 20u);
  EXPECT_FLOAT_EQ(out.accepted.sampling().top_p(), 0.9f);
  EXPECT_FLOAT_EQ(out.accepted.sampling().repetition_penalty(), 1.1f);
  EXPECT_TRUE(out.accepted.sampling().has_min_p());
  EXPECT_EQ(out.accepted.stop().max_tokens(), 5u);
  EXPECT_EQ(out.ids.size(), 5u);
  const uint64_t drawn = out.accepted.sampling().seed();

  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_top_k(0);
  request.mutable_stop()->set_max_tokens(3);
  request.mutable_stop()->set_min_tokens(2);
  request.mutable_stop()->add_stop("zz");
  out = Stream(server.inference(), request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.accepted.sampling().temperature(), 0.0f);
  EXPECT_EQ(out.accepted.sampling().top_k(), 0u);
  EXPECT_NE(out.accepted.sampling().seed(), drawn);
  EXPECT_EQ(out.accepted.stop().min_tokens(), 2u);
  EXPECT_THAT(out.accepted.stop().stop(), ElementsAre("zz"));
}

// Covers server/call/sampling_codec.cc.
TEST(GenerateTest, EchoesEverySamplingParameter) {
  TestServer server;
  v1::GenerateRequest request = AskFor(1);
  v1::SamplingParams* sampling = request.mutable_sampling();
  // One request sets nothing, the other every number, to its lowest allowed value or near it.
  const v1::SamplingParams defaults = Stream(server.inference(), request).accepted.sampling();
  for (const SamplingField& field : SamplingFields()) {
    const auto* descriptor = v1::SamplingParams::descriptor()->FindFieldByName(field.name);
    ASSERT_NE(descriptor, nullptr) << field.name;
    EXPECT_TRUE(defaults.GetReflection()->HasField(defaults, descriptor)) << field.name;
    const double value = field.low + (field.above_low ? 0.25 : 0);
    if (std::holds_alternative<float SampleRow::*>(field.member)) {
      sampling->GetReflection()->SetFloat(sampling, descriptor, static_cast<float>(value));
    } else {
      sampling->GetReflection()->SetUInt32(sampling, descriptor, static_cast<uint32_t>(value));
    }
  }
  sampling->set_temperature(1.5f);
  sampling->set_seed(9);
  (*sampling->mutable_logit_bias())[3] = -1.5f;
  sampling->add_allowed_token_ids(40);
  sampling->add_allowed_token_ids(41);
  sampling->add_banned_token_ids(41);
  sampling->add_dry_breaker_ids(10);
  for (const uint32_t id : {5, 6}) {
    if (id == 5) sampling->add_bad_word_ids();
    sampling->mutable_bad_word_ids(0)->add_ids(id);
  }
  const StreamedOutput out = Stream(server.inference(), request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.accepted.sampling().DebugString(), sampling->DebugString());
  for (int i = 0; i < v1::SamplingParams::descriptor()->field_count(); ++i) {
    const auto* descriptor = v1::SamplingParams::descriptor()->field(i);
    if (descriptor->name() == "logit_processors") continue;  // names sets of a file
    const bool set = descriptor->is_repeated()
                         ? sampling->GetReflection()->FieldSize(*sampling, descriptor) > 0
                         : sampling->GetReflection()->HasField(*sampling, descriptor);
    EXPECT_TRUE(set) << descriptor->name() << " is not in this test";
  }
}

TEST(GenerateTest, GreedyWhenTheModelDoesNotSample) {
  TestServerOptions options;
  options.generation.do_sample = false;
  options.generation.temperature = 0.7f;
  TestServer server(options);
  EXPECT_EQ(Stream(server.inference(), AskFor(1)).accepted.sampling().temperature(), 0.0f);
}

TEST(GenerateTest, DefaultMaxTokensFillsTheContext) {
  TestServerOptions options;
  options.max_model_len = 100;
  TestServer server(options);
  v1::GenerateRequest request;
  request.set_text("hi");
  const StreamedOutput out = Stream(server.inference(), request);
  EXPECT_EQ(out.accepted.stop().max_tokens(), 97u);
  EXPECT_EQ(out.ids.size(), 97u);
}

TEST(GenerateTest, StopStringEndsTextAndIdsExactly) {
  TestServer server;
  v1::GenerateRequest request = AskFor(1000);
  request.mutable_stop()->add_stop("fgh");
  StreamedOutput out = Stream(server.inference(), request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.text, "abcde");
  EXPECT_EQ(out.ids, Bytes("abcdefgh"));
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_STOP_TEXT);
  EXPECT_EQ(out.finished.stop_text(), "fgh");
  EXPECT_EQ(out.finished.usage().completion_tokens(), 8u);
  EXPECT_TRUE(out.gap_free);

  request.mutable_stop()->set_include_stop_in_output(true);
  out = Stream(server.inference(), request);
  EXPECT_EQ(out.text, "abcdefgh");
  EXPECT_EQ(out.ids.size(), 8u);

  request.mutable_output()->set_text(false);
  out = Stream(server.inference(), request);
  EXPECT_EQ(out.text, "");
  EXPECT_EQ(out.ids.size(), 8u);
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_STOP_TEXT);
  server.ExpectNothingLeft();
}

TEST(GenerateTest, HoldsBackAPossibleStopStringAndReleasesItAtTheEnd) {
  TestServer server;
  v1::GenerateRequest request = AskFor(4);
  request.mutable_stop()->add_stop("cdX");
  const StreamedOutput out = Stream(server.inference(), request);
  EXPECT_EQ(out.text, "abcd");
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_MAX_TOKENS);
}

TEST(GenerateTest, StopTokenIsInTheIdsAndNotInTheText) {
  TestServer server;
  v1::GenerateRequest request = AskFor(1000);
  request.mutable_stop()->add_stop_token_ids('c');
  const StreamedOutput out = Stream(server.inference(), request);
  EXPECT_EQ(out.text, "ab");
  EXPECT_EQ(out.ids, Bytes("abc"));
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_STOP_TOKEN);
  EXPECT_EQ(out.finished.stop_token_id(), static_cast<uint32_t>('c'));
}

TEST(GenerateTest, EndsAtEosUnlessEosIsIgnored) {
  TestServerOptions options;
  options.script_ids = {'x', 'y', kTestEos, 'z'};
  TestServer server(options);
  StreamedOutput out = Stream(server.inference(), AskFor(6));
  EXPECT_EQ(out.text, "xy");
  EXPECT_THAT(out.ids, ElementsAre('x', 'y', kTestEos));
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_EOS);
  EXPECT_EQ(out.finished.stop_token_id(), static_cast<uint32_t>(kTestEos));

  v1::GenerateRequest request = AskFor(6);
  request.mutable_stop()->set_ignore_eos(true);
  out = Stream(server.inference(), request);
  EXPECT_EQ(out.text, "xyzxy");
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_MAX_TOKENS);

  request.mutable_output()->set_skip_special_tokens(false);
  EXPECT_EQ(Stream(server.inference(), request).text, "xy</s>zxy");
}

TEST(GenerateTest, TextHoldsWholeCodePointsOnly) {
  TestServerOptions options;
  options.script = "h\xC3\xA9\xE2\x82\xAC";  // hé€
  TestServer server(options);
  const StreamedOutput out = Stream(server.inference(), AskFor(8));
  ASSERT_TRUE(out.status.ok());
  // A frame with half a code point would not even parse at the client. The eighth byte opens an é
  // that never ends.
  EXPECT_EQ(out.text, "h\xC3\xA9\xE2\x82\xACh\xEF\xBF\xBD");
}

TEST(GenerateTest, SendsOnlyRequestedOutput) {
  TestServer server;
  v1::GenerateRequest request = AskFor(5);
  request.mutable_output()->set_token_ids(false);
  StreamedOutput out = Stream(server.inference(), request);
  EXPECT_EQ(out.text, "abcde");
  EXPECT_TRUE(out.ids.empty());
  EXPECT_TRUE(out.logprobs.empty());
  request.mutable_output()->set_token_ids(true);
  request.mutable_output()->set_text(false);
  out = Stream(server.inference(), request);
  EXPECT_EQ(out.ids.size(), 5u);
  EXPECT_EQ(out.text, "");
}

TEST(GenerateTest, TakesTokenIdsAndChats) {
  TestServerOptions options;
  options.chat_template =
      "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  TestServer server(options);
  v1::GenerateRequest request = AskFor(1);
  request.mutable_token_ids()->add_ids('x');
  request.mutable_token_ids()->add_ids('y');
  EXPECT_EQ(Stream(server.inference(), request).accepted.prompt_tokens(), 2u);
  request.mutable_chat()->add_messages()->set_role("user");
  request.mutable_chat()->mutable_messages(0)->set_content("hello");
  EXPECT_EQ(Stream(server.inference(), request).accepted.prompt_tokens(),
            std::string("[user]hello[assistant]").size());
  request.mutable_chat()->set_add_generation_prompt(false);
  EXPECT_EQ(Stream(server.inference(), request).accepted.prompt_tokens(),
            std::string("[user]hello").size());
}

TEST(GenerateTest, ServesManyStreamsAtOnce) {
  TestServer server;
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  for (int i = 0; i < 32; ++i) {
    clients.emplace_back([&, i] {
      const auto size = static_cast<uint32_t>(100 + i);
      const StreamedOutput out = Stream(server.inference(), AskFor(size));
      if (out.status.ok() && out.gap_free && out.text == Repeat("abcdefghij", size)) ++right;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right.load(), 32);
  server.ExpectNothingLeft();
}

TEST(GenerateTest, RefusesALiveRequestIdAndTakesItAgainAfterTheEnd) {
  TestServer server;
  server.gate().Allow(0);
  v1::GenerateRequest request = AskFor(3);
  request.set_request_id("same");
  grpc::ClientContext first_context;
  const auto first = server.inference().Generate(&first_context, request);
  v1::GenerateResponse frame;
  ASSERT_TRUE(first->Read(&frame));
  ASSERT_TRUE(frame.has_accepted());

  const grpc::Status second = Stream(server.inference(), request).status;
  EXPECT_EQ(second.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Reason(second), "REQUEST_ID_LIVE");
  EXPECT_THAT(second.error_message(), HasSubstr("request_id"));

  server.gate().Allow(-1);
  while (first->Read(&frame)) {
  }
  EXPECT_TRUE(first->Finish().ok());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(Stream(server.inference(), request).status.ok());
  server.ExpectNothingLeft();
}

TEST(GenerateTest, ClientCancelFreesTheRequest) {
  TestServer server;
  server.gate().Allow(5);
  grpc::ClientContext context;
  const auto reader = server.inference().Generate(&context, AskFor(1000));
  v1::GenerateResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  ASSERT_TRUE(reader->Read(&frame));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
}

TEST(GenerateTest, CancelOfAUnaryCallFreesTheRequest) {
  TestServer server;
  server.gate().Allow(5);
  grpc::ClientContext context;
  v1::GenerateResult result;
  grpc::Status status;
  std::thread caller(
      [&] { status = server.inference().GenerateUnary(&context, AskFor(1000), &result); });
  EXPECT_TRUE(TestServer::Eventually([&] { return server.Load().running_requests() == 1; }));
  context.TryCancel();
  caller.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
}

TEST(GenerateTest, DeadlinePassesInTheEngine) {
  TestServer server;
  server.gate().Allow(3);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  const StreamedOutput out = Stream(server.inference(), AskFor(1000), &context);
  EXPECT_EQ(out.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
}

TEST(GenerateTest, ServersOwnDeadlineHoldsWhenTheClientSetsNone) {
  TestServerOptions options;
  options.front.default_deadline_seconds = 0.2;
  TestServer server(options);
  server.gate().Allow(3);
  const StreamedOutput out = Stream(server.inference(), AskFor(1000));
  EXPECT_EQ(out.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(Reason(out.status), "DEADLINE");
  // The output before the deadline is a valid prefix.
  EXPECT_EQ(out.text, Repeat("abcdefghij", out.ids.size()));
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
}

TEST(GenerateTest, DisconnectFreesTheRequest) {
  TestServer server;
  server.gate().Allow(3);
  {
    auto channel = server.NewChannel();
    const auto stub = v1::Inference::NewStub(channel);
    grpc::ClientContext context;
    const auto reader = stub->Generate(&context, AskFor(1000));
    v1::GenerateResponse frame;
    ASSERT_TRUE(reader->Read(&frame));
    // The context's destruction drops the call, the channel's the connection.
    context.TryCancel();
    (void)reader->Finish();
  }
  server.gate().Allow(-1);
  server.ExpectNothingLeft();
}

TEST(GenerateTest, QueueFullIsUnavailableWithARetry) {
  TestServerOptions options;
  options.max_num_seqs = 1;
  options.max_num_queued_reqs = 2;
  TestServer server(options);
  server.gate().Allow(0);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  grpc::Status refused;
  for (int i = 0; i < 8 && refused.ok(); ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(server.inference().Generate(contexts.back().get(), AskFor(4)));
    v1::GenerateResponse frame;
    if (!readers.back()->Read(&frame)) refused = readers.back()->Finish();
  }
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Reason(refused), "QUEUE_FULL");
  EXPECT_GT(RetrySeconds(refused), 0.0);
  server.gate().Allow(-1);
  for (size_t i = 0; i + 1 < readers.size(); ++i) {
    v1::GenerateResponse frame;
    while (readers[i]->Read(&frame)) {
    }
    EXPECT_TRUE(readers[i]->Finish().ok());
  }
  server.ExpectNothingLeft();
}

TEST(GenerateTest, TooManyOpenStreamsAreRefused) {
  TestServerOptions options;
  options.front.max_open_streams = 2;
  TestServer server(options);
  server.gate().Allow(0);
  grpc::ClientContext contexts[2];
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> readers[2];
  v1::GenerateResponse frame;
  for (int i = 0; i < 2; ++i) {
    readers[i] = server.inference().Generate(&contexts[i], AskFor(2));
    ASSERT_TRUE(readers[i]->Read(&frame));
  }
  const grpc::Status third = Stream(server.inference(), AskFor(2)).status;
  EXPECT_EQ(third.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Reason(third), "TOO_MANY_STREAMS");
  EXPECT_GT(RetrySeconds(third), 0.0);
  server.gate().Allow(-1);
  for (const auto& reader : readers) {
    while (reader->Read(&frame)) {
    }
    EXPECT_TRUE(reader->Finish().ok());
  }
  server.ExpectNothingLeft();
  EXPECT_TRUE(Stream(server.inference(), AskFor(2)).status.ok());
}

TEST(GenerateTest, OutputThatIsNotANumberIsInternalForThisRequestOnly) {
  TestServer server;
  server.gate().Allow(3);
  grpc::ClientContext context;
  const auto reader = server.inference().Generate(&context, AskFor(1000));
  v1::GenerateResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  ASSERT_TRUE(reader->Read(&frame));
  server.gate().SpoilSamples();
  server.gate().Allow(-1);
  while (reader->Read(&frame)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(Reason(status), "NUMERIC");
  server.ExpectNothingLeft();
}

TEST(GenerateTest, DeathOfTheWorkersIsInternalThenUnavailable) {
  TestServerOptions options;
  options.ranks = 2;
  TestServer server(options);
  EXPECT_TRUE(Stream(server.inference(), AskFor(5)).status.ok());
  server.gate().BreakRanks();
  const grpc::Status running = Stream(server.inference(), AskFor(5)).status;
  EXPECT_EQ(running.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(Reason(running), "ENGINE_FAULT");
  const grpc::Status later = Stream(server.inference(), AskFor(5)).status;
  EXPECT_EQ(later.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Reason(later), "ENGINE_FAULT");
  EXPECT_GT(RetrySeconds(later), 0);
  grpc::ClientContext context;
  v1::ServerInfo info;
  ASSERT_TRUE(server.control().GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.state(), v1::ServerInfo::STATE_FAULTED);
}

TEST(GenerateTest, ShutdownEndsStreamsWithUnavailable) {
  TestServer server;
  server.gate().Allow(3);
  grpc::ClientContext context;
  const auto reader = server.inference().Generate(&context, AskFor(1000));
  v1::GenerateResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  ASSERT_TRUE(reader->Read(&frame));
  std::thread closer([&] { server.front().Shutdown(5); });
  while (reader->Read(&frame)) {
  }
  const grpc::Status status = reader->Finish();
  closer.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Reason(status), "DRAINING");
  EXPECT_EQ(server.front().open_streams(), 0);
}

TEST(GenerateTest, ShutdownReturnsThoughTheEngineHangs) {
  TestServer server;
  server.gate().Allow(0);
  grpc::ClientContext context;
  const auto reader = server.inference().Generate(&context, AskFor(10));
  v1::GenerateResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  server.front().Shutdown(0.5);
  while (reader->Read(&frame)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

}  // namespace
}  // namespace quire
