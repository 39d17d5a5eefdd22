// Every kind of bad input over real gRPC: the answer has the right code and field. Afterwards all
// blocks are free, and a good request is served.
// Covers server/generate/request_codec.cc
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "server/call/wire_check.h"
#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using Code = grpc::StatusCode;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct BadCase {
  const char* name;
  std::function<void(v1::GenerateRequest&)> spoil;
  Code code;
  const char* field;    // BadRequest's, or ErrorInfo's reason when the code is not INVALID_ARGUMENT
  const char* message;  // part of it
};

void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.name; }

BadCase BadFloat(const char* name, void (v1::SamplingParams::*set)(float), float value,
                 const char* field) {
  return {name, [=](v1::GenerateRequest& request) { (request.mutable_sampling()->*set)(value); },
          Code::INVALID_ARGUMENT, field, "must be"};
}

std::vector<BadCase> SamplingCases() {
  using S = v1::SamplingParams;
  return {
      BadFloat("temperature_negative", &S::set_temperature, -0.1f, "sampling.temperature"),
      BadFloat("temperature_huge", &S::set_temperature, 100.1f, "sampling.temperature"),
      BadFloat("temperature_nan", &S::set_temperature, kNan, "sampling.temperature"),
      BadFloat("temperature_inf", &S::set_temperature, kInf, "sampling.temperature"),
      BadFloat("top_p_zero", &S::set_top_p, 0.0f, "sampling.top_p"),
      BadFloat("top_p_negative", &S::set_top_p, -1.0f, "sampling.top_p"),
      BadFloat("top_p_above_one", &S::set_top_p, 1.01f, "sampling.top_p"),
      BadFloat("top_p_nan", &S::set_top_p, kNan, "sampling.top_p"),
      BadFloat("min_p_negative", &S::set_min_p, -0.01f, "sampling.min_p"),
      BadFloat("min_p_above_one", &S::set_min_p, 1.01f, "sampling.min_p"),
      BadFloat("min_p_nan", &S::set_min_p, kNan, "sampling.min_p"),
      BadFloat("repetition_zero", &S::set_repetition_penalty, 0.0f, "sampling.repetition_penalty"),
      BadFloat("repetition_negative", &S::set_repetition_penalty, -1.0f,
               "sampling.repetition_penalty"),
      BadFloat("repetition_huge", &S::set_repetition_penalty, 10.5f, "sampling.repetition_penalty"),
      BadFloat("repetition_nan", &S::set_repetition_penalty, kNan, "sampling.repetition_penalty"),
      BadFloat("presence_low", &S::set_presence_penalty, -2.1f, "sampling.presence_penalty"),
      BadFloat("presence_high", &S::set_presence_penalty, 2.1f, "sampling.presence_penalty"),
      BadFloat("presence_nan", &S::set_presence_penalty, kNan, "sampling.presence_penalty"),
      BadFloat("frequency_low", &S::set_frequency_penalty, -2.1f, "sampling.frequency_penalty"),
      BadFloat("frequency_inf", &S::set_frequency_penalty, -kInf, "sampling.frequency_penalty"),
      {"top_k_beyond_vocab", [](auto& r) { r.mutable_sampling()->set_top_k(kTestVocab + 1); },
       Code::INVALID_ARGUMENT, "sampling.top_k", "258"},
      {"top_k_overflow", [](auto& r) { r.mutable_sampling()->set_top_k(0xFFFFFFFFu); },
       Code::INVALID_ARGUMENT, "sampling.top_k", "must be"},
      {"bias_token_outside",
       [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[258] = 1; },
       Code::INVALID_ARGUMENT, "sampling.logit_bias", "258"},
      {"bias_token_overflow",
       [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[0x80000001u] = 1; },
       Code::INVALID_ARGUMENT, "sampling.logit_bias", "[0, 258)"},
      {"bias_nan", [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[1] = kNan; },
       Code::INVALID_ARGUMENT, "sampling.logit_bias", "-100 and 100"},
      {"bias_huge", [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[1] = 101; },
       Code::INVALID_ARGUMENT, "sampling.logit_bias", "-100 and 100"},
      {"bias_too_many",
       [](auto& r) {
         for (uint32_t i = 0; i < 1025; ++i) (*r.mutable_sampling()->mutable_logit_bias())[i] = 1;
       },
       Code::INVALID_ARGUMENT, "sampling.logit_bias", "1024"},
  };
}

std::vector<BadCase> FilterCases() {
  using S = v1::SamplingParams;
  return {
      BadFloat("typical_p_zero", &S::set_typical_p, 0.0f, "sampling.typical_p"),
      BadFloat("top_n_sigma_nan", &S::set_top_n_sigma, kNan, "sampling.top_n_sigma"),
      BadFloat("xtc_threshold_high", &S::set_xtc_threshold, 0.6f, "sampling.xtc_threshold"),
      BadFloat("dynatemp_beyond_temperature", &S::set_dynatemp_range, 50.0f,
               "sampling.dynatemp_range"),
      BadFloat("dry_base_low", &S::set_dry_base, 0.9f, "sampling.dry_base"),
      {"dry_allowed_length_zero", [](auto& r) { r.mutable_sampling()->set_dry_allowed_length(0); },
       Code::INVALID_ARGUMENT, "sampling.dry_allowed_length", "between 1 and 50"},
      {"dry_breaker_overflow",
       [](auto& r) { r.mutable_sampling()->add_dry_breaker_ids(0xFFFFFFFFu); },
       Code::INVALID_ARGUMENT, "sampling.dry_breaker_ids", "holds token id"},
      {"loop_of_many_tokens", [](auto& r) { r.mutable_stop()->set_loop_max_tokens(257); },
       Code::INVALID_ARGUMENT, "stop.loop_max_tokens", "between 0"},
      {"loop_of_one", [](auto& r) { r.mutable_stop()->set_loop_min_repeats(1); },
       Code::INVALID_ARGUMENT, "stop.loop_min_repeats", "between 2"},
      {"xtc_of_greedy",
       [](auto& r) {
         r.mutable_sampling()->set_temperature(0);
         r.mutable_sampling()->set_xtc_probability(0.5f);
       },
       Code::INVALID_ARGUMENT, "sampling.xtc_probability", "above 0"},
      {"banned_outside", [](auto& r) { r.mutable_sampling()->add_banned_token_ids(258); },
       Code::INVALID_ARGUMENT, "sampling.bad_word_ids", "258"},
      {"too_many_banned",
       [](auto& r) {
         for (int i = 0; i < 1025; ++i) r.mutable_sampling()->add_banned_token_ids(i % 256);
       },
       Code::INVALID_ARGUMENT, "sampling.banned_token_ids", "has 1025 ids; at most 1024"},
      {"bad_word_huge_id",
       [](auto& r) { r.mutable_sampling()->add_bad_word_ids()->add_ids(0xFFFFFFFFu); },
       Code::INVALID_ARGUMENT, "sampling.bad_word_ids", "holds token id"},
      {"bad_word_without_ids", [](auto& r) { r.mutable_sampling()->add_bad_word_ids(); },
       Code::INVALID_ARGUMENT, "sampling.bad_word_ids", "empty word"},
      {"all_allowed_are_banned",
       [](auto& r) {
         r.mutable_sampling()->add_allowed_token_ids(7);
         r.mutable_sampling()->add_banned_token_ids(7);
       },
       Code::INVALID_ARGUMENT, "sampling.allowed_token_ids", "bad words"},
  };
}

std::vector<BadCase> StopCases() {
  return {
      {"max_tokens_zero", [](auto& r) { r.mutable_stop()->set_max_tokens(0); },
       Code::INVALID_ARGUMENT, "stop.max_tokens", "at least 1"},
      {"max_tokens_beyond_context", [](auto& r) { r.mutable_stop()->set_max_tokens(2046); },
       Code::INVALID_ARGUMENT, "stop.max_tokens", "at most 2045"},
      {"max_tokens_overflow", [](auto& r) { r.mutable_stop()->set_max_tokens(0xFFFFFFFFu); },
       Code::INVALID_ARGUMENT, "stop.max_tokens", "at most 2045"},
      {"min_above_max", [](auto& r) { r.mutable_stop()->set_min_tokens(5); },
       Code::INVALID_ARGUMENT, "stop.min_tokens", "max_tokens (4)"},
      {"min_above_context",
       [](auto& r) {
         r.mutable_stop()->clear_max_tokens();
         r.mutable_stop()->set_min_tokens(2046);
       },
       Code::INVALID_ARGUMENT, "stop.min_tokens", "max_tokens (2045)"},
      {"min_overflow", [](auto& r) { r.mutable_stop()->set_min_tokens(0xFFFFFFFFu); },
       Code::INVALID_ARGUMENT, "stop.min_tokens", "must be"},
      {"stop_empty", [](auto& r) { r.mutable_stop()->add_stop(""); }, Code::INVALID_ARGUMENT,
       "stop.stop", "1 to 256"},
      {"stop_long", [](auto& r) { r.mutable_stop()->add_stop(std::string(257, 'x')); },
       Code::INVALID_ARGUMENT, "stop.stop", "1 to 256"},
      {"stop_too_many",
       [](auto& r) {
         for (int i = 0; i < 17; ++i) r.mutable_stop()->add_stop("x");
       },
       Code::INVALID_ARGUMENT, "stop.stop", "at most 16"},
      {"stop_ids_outside", [](auto& r) { r.mutable_stop()->add_stop_token_ids(258); },
       Code::INVALID_ARGUMENT, "stop.stop_token_ids", "[0, 258)"},
      {"stop_ids_too_many",
       [](auto& r) {
         for (uint32_t i = 0; i < 65; ++i) r.mutable_stop()->add_stop_token_ids(i);
       },
       Code::INVALID_ARGUMENT, "stop.stop_token_ids", "at most 64"},
  };
}

std::vector<BadCase> PromptCases() {
  return {
      {"no_prompt", [](auto& r) { r.clear_prompt(); }, Code::INVALID_ARGUMENT, "prompt",
       "set one of"},
      {"empty_text",
       [](auto& r) {
         r.set_text("");
         r.set_add_special_tokens(false);
       },
       Code::INVALID_ARGUMENT, "text", "empty"},
      {"empty_ids", [](auto& r) { r.mutable_token_ids(); }, Code::INVALID_ARGUMENT, "token_ids.ids",
       "empty"},
      {"ids_outside", [](auto& r) { r.mutable_token_ids()->add_ids(258); }, Code::INVALID_ARGUMENT,
       "token_ids.ids", "index 0"},
      {"ids_negative", [](auto& r) { r.mutable_token_ids()->add_ids(static_cast<uint32_t>(-1)); },
       Code::INVALID_ARGUMENT, "token_ids.ids", "[0, 258)"},
      {"ids_two_to_the_31", [](auto& r) { r.mutable_token_ids()->add_ids(0x80000000u); },
       Code::INVALID_ARGUMENT, "token_ids.ids", "[0, 258)"},
      {"text_over_context",
       [](auto& r) {
         r.set_text(std::string(5000, 'a'));
         r.mutable_stop()->clear_max_tokens();
       },
       Code::INVALID_ARGUMENT, "prompt", "5001 tokens; the context of 2048"},
      {"text_fills_context", [](auto& r) { r.set_text(std::string(2047, 'a')); },
       Code::INVALID_ARGUMENT, "prompt", "leaves no room"},
      {"no_template", [](auto& r) { r.mutable_chat()->add_messages()->set_role("user"); },
       Code::FAILED_PRECONDITION, "NO_CHAT_TEMPLATE", "no chat template"},
      {"unknown_model", [](auto& r) { r.set_model("other"); }, Code::NOT_FOUND, "MODEL_NOT_FOUND",
       "test-model"},
      {"empty_request_id", [](auto& r) { r.set_request_id(""); }, Code::INVALID_ARGUMENT,
       "request_id", "leave it out"},
      {"long_request_id", [](auto& r) { r.set_request_id(std::string(129, 'a')); },
       Code::INVALID_ARGUMENT, "request_id", "128"},
      {"odd_request_id", [](auto& r) { r.set_request_id("a b"); }, Code::INVALID_ARGUMENT,
       "request_id", "[A-Za-z0-9._:-]"},
      {"priority_high", [](auto& r) { r.set_priority(101); }, Code::INVALID_ARGUMENT, "priority",
       "-100 and 100"},
      {"priority_low", [](auto& r) { r.set_priority(-101); }, Code::INVALID_ARGUMENT, "priority",
       "-100 and 100"},
      {"guesses", [](auto& r) { r.mutable_speculation()->set_max_guesses(1); },
       Code::INVALID_ARGUMENT, "speculation.max_guesses", "between 0 and 0"},
      {"nothing_to_send",
       [](auto& r) {
         r.mutable_output()->set_text(false);
         r.mutable_output()->set_token_ids(false);
       },
       Code::INVALID_ARGUMENT, "output", "both off"},
  };
}

TestServer& Server() {
  static TestServer* server = new TestServer();
  return *server;
}

class BadInputTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadInputTest, IsRefusedWithItsFieldAndHasNoSideEffects) {
  const BadCase& bad = GetParam();
  v1::GenerateRequest request = AskFor(4);
  bad.spoil(request);
  const grpc::Status streamed = Stream(Server().inference(), request).status;
  EXPECT_EQ(streamed.error_code(), bad.code) << streamed.error_message();
  EXPECT_EQ(bad.code == Code::INVALID_ARGUMENT ? ViolatedField(streamed) : Reason(streamed),
            bad.field);
  EXPECT_THAT(streamed.error_message(), HasSubstr(bad.message));

  grpc::ClientContext context;
  v1::GenerateResult result;
  const grpc::Status unary = Server().inference().GenerateUnary(&context, request, &result);
  EXPECT_EQ(unary.error_code(), streamed.error_code());
  EXPECT_EQ(unary.error_message(), streamed.error_message());
  EXPECT_EQ(unary.error_details(), streamed.error_details());

  Server().ExpectNothingLeft();
  EXPECT_TRUE(Stream(Server().inference(), AskFor(4)).status.ok());
}

const auto kName = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Sampling, BadInputTest, ::testing::ValuesIn(SamplingCases()), kName);
INSTANTIATE_TEST_SUITE_P(Filters, BadInputTest, ::testing::ValuesIn(FilterCases()), kName);
INSTANTIATE_TEST_SUITE_P(Stop, BadInputTest, ::testing::ValuesIn(StopCases()), kName);
INSTANTIATE_TEST_SUITE_P(Prompt, BadInputTest, ::testing::ValuesIn(PromptCases()), kName);

// Ranges include their limits.
TEST(GoodInputTest, LimitsAreAllowed) {
  const std::vector<std::function<void(v1::GenerateRequest&)>> edges = {
      [](auto& r) { r.mutable_sampling()->set_temperature(100); },
      [](auto& r) { r.mutable_sampling()->set_temperature(0); },
      [](auto& r) { r.mutable_sampling()->set_top_k(kTestVocab); },
      [](auto& r) { r.mutable_sampling()->set_top_p(1); },
      [](auto& r) { r.mutable_sampling()->set_min_p(1); },
      [](auto& r) { r.mutable_sampling()->set_repetition_penalty(10); },
      [](auto& r) { r.mutable_sampling()->set_presence_penalty(-2); },
      [](auto& r) { r.mutable_sampling()->set_frequency_penalty(2); },
      [](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[257] = -100; },
      [](auto& r) { r.mutable_sampling()->set_seed(0xFFFFFFFFFFFFFFFFu); },
      [](auto& r) { r.mutable_stop()->set_max_tokens(2045); },
      [](auto& r) { r.mutable_stop()->set_min_tokens(4); },
      [](auto& r) { r.mutable_stop()->add_stop(std::string(256, 'x')); },
      [](auto& r) { r.mutable_stop()->add_stop_token_ids(257); },
      [](auto& r) { r.set_request_id(std::string(128, 'Z')); },
      [](auto& r) { r.set_priority(-100); },
      [](auto& r) { r.mutable_speculation()->set_max_guesses(0); },
      [](auto& r) { r.set_model("test-model"); },
      [](auto& r) { r.set_text(""); },  // <s> is a token
      [](auto& r) {
        r.set_text(std::string(2046, 'a'));
        r.mutable_stop()->set_max_tokens(1);
      },
  };
  for (size_t i = 0; i < edges.size(); ++i) {
    v1::GenerateRequest request = AskFor(4);
    edges[i](request);
    const grpc::Status status = Stream(Server().inference(), request).status;
    EXPECT_TRUE(status.ok()) << "edge " << i << ": " << status.error_message();
  }
  Server().ExpectNothingLeft();
}

TEST(BadInputAloneTest, RequestLargerThanTheWholePool) {
  TestServerOptions options;
  options.num_blocks = 5;  // 64 tokens
  options.max_model_len = 1000;
  TestServer server(options);
  v1::GenerateRequest request = AskFor(62);
  grpc::Status status = Stream(server.inference(), request).status;
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(ViolatedField(status), "stop.max_tokens");
  EXPECT_THAT(status.error_message(), HasSubstr("the KV cache of 64 tokens"));
  EXPECT_TRUE(Stream(server.inference(), AskFor(61)).status.ok());
  request.set_text(std::string(64, 'a'));
  status = Stream(server.inference(), request).status;
  EXPECT_EQ(ViolatedField(status), "prompt");
  server.ExpectNothingLeft();
}

TEST(BadInputAloneTest, OversizedMessageIsResourceExhausted) {
  TestServerOptions options;
  options.front.max_request_bytes = 100'000;
  TestServer server(options);
  v1::GenerateRequest request = AskFor(1);
  request.set_text(std::string(100'001, 'a'));
  const grpc::Status status = Stream(server.inference(), request).status;
  EXPECT_EQ(status.error_code(), Code::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_TRUE(Stream(server.inference(), AskFor(1)).status.ok());
  server.ExpectNothingLeft();
}

// Sends raw bytes.
grpc::Status CallRaw(TestServer& server, const std::string& method, const std::string& bytes) {
  grpc::GenericStub stub(server.channel());
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

struct MalformedCase {
  const char* name;
  std::string bytes;
  const char* field;
};

// Field 3 is text, 8.3 stop.stop, 5.1.2 chat.messages.content, 1 request_id, 7.9 logit_bias.
TEST(MalformedTest, NamesTheFieldThatBreaks) {
  const std::vector<MalformedCase> cases = {
      {"truncated field", std::string("\x1A\x05hi", 4), "text"},
      {"tag zero", std::string("\x00\x01", 2), "request"},
      {"endless varint", std::string("\x50\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12),
       "priority"},
      {"overlong UTF-8", "\x1A\x03\xE0\x80\x80", "text"},
      {"surrogate", "\x1A\x03\xED\xA0\x80", "text"},
      {"above U+10FFFF", "\x1A\x04\xF4\x90\x80\x80", "text"},
      {"lone continuation", "\x1A\x02h\x80", "text"},
      {"cut code point", "\x1A\x02h\xE2", "text"},
      {"bad UTF-8 in the id", "\x0A\x01\xFF", "request_id"},
      {"bad UTF-8 in a stop string", "\x1A\x01h\x42\x03\x1A\x01\xFE", "stop.stop"},
      {"bad UTF-8 in a chat", "\x2A\x05\x0A\x03\x12\x01\xC0", "chat.messages.content"},
      {"cut short inside", std::string("\x3A\x02\x0D\x00", 4), "sampling.temperature"},
  };
  for (const MalformedCase& bad : cases) {
    for (const char* method : {"Generate", "GenerateUnary"}) {
      const grpc::Status status =
          CallRaw(Server(), std::string("/quire.v1.Inference/") + method, bad.bytes);
      EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT) << bad.name;
      EXPECT_EQ(ViolatedField(status), bad.field) << bad.name << ": " << status.error_message();
    }
  }
  // Every other kind of call answers the same.
  grpc::Status status = CallRaw(Server(), "/quire.v1.Inference/Tokenize", "\x12\x01\xFF");
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(ViolatedField(status), "text");
  status = CallRaw(Server(), "/quire.v1.Control/Abort", "\x0A\x01\xFF");
  EXPECT_EQ(ViolatedField(status), "request_ids");
  status = CallRaw(Server(), "/quire.v1.Control/NoSuchMethod", "");
  EXPECT_EQ(status.error_code(), Code::UNIMPLEMENTED);
  Server().ExpectNothingLeft();
}

// Sends no message at all, which no stub of a method can.
grpc::Status CallWithoutMessage(TestServer& server, const std::string& method) {
  grpc::GenericStub stub(server.channel());
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  grpc::Status status;
  const auto call = stub.PrepareCall(&context, method, &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(&context);
  queue.Next(&tag, &ok);
  call->WritesDone(&context);
  queue.Next(&tag, &ok);
  call->Finish(&status, &context);
  queue.Next(&tag, &ok);
  return status;
}

// The server does not take it for an empty one. A call that was cancelled, or whose deadline
// passed, before its message was there comes the same way.
TEST(MalformedTest, AMessageThatNeverCameIsNoMessage) {
  for (const char* method :
       {"/quire.v1.Inference/Tokenize", "/quire.v1.Inference/Generate",
        "/quire.v1.Inference/GenerateUnary", "/quire.v1.Inference/GenerateBatch",
        "/quire.v1.Control/GetLoad", "/quire.v1.Control/GetMemory", "/quire.v1.Sessions/List",
        "/quire.v1.Sessions/Watch", "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch"}) {
    const grpc::Status status = CallWithoutMessage(Server(), method);
    EXPECT_EQ(status.error_code(), Code::CANCELLED) << method << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("before its message was there")) << method;
  }
  Server().ExpectNothingLeft();
}

TEST(MalformedTest, AnEmptyMessageIsOne) {
  EXPECT_TRUE(CallRaw(Server(), "/quire.v1.Control/GetLoad", "").ok());
  EXPECT_TRUE(CallRaw(Server(), "/quire.v1.Sessions/List", "").ok());
  EXPECT_EQ(ViolatedField(CallRaw(Server(), "/quire.v1.Inference/Tokenize", "")), "input");
  EXPECT_EQ(ViolatedField(CallRaw(Server(), "/quire.v1.Inference/GenerateUnary", "")), "prompt");
}

TEST(MalformedTest, EveryTruncationOfAMessageIsAnswered) {
  v1::GenerateRequest request = AskFor(4);
  request.set_request_id("truncated");
  request.mutable_sampling()->set_seed(123456789);
  (*request.mutable_sampling()->mutable_logit_bias())[5] = 1.5f;
  request.mutable_stop()->add_stop("xyz");
  const std::string bytes = request.SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const grpc::Status status =
        CallRaw(Server(), "/quire.v1.Inference/GenerateUnary", bytes.substr(0, size));
    // A cut between two fields leaves a valid message that may lack a required field.
    if (status.ok()) continue;
    EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT) << size;
    EXPECT_NE(ViolatedField(status), "") << size;
  }
  Server().ExpectNothingLeft();
}

TEST(MalformedTest, ValidUtf8PrefixAgreesWithTheDefinition) {
  // Every code point once, encoded by arithmetic.
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    if (c < 0x80) {
      text = {static_cast<char>(c)};
    } else if (c < 0x800) {
      text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
      text = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
              static_cast<char>(0x80 | (c & 63))};
    } else {
      text = {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 63)),
              static_cast<char>(0x80 | (c >> 6 & 63)), static_cast<char>(0x80 | (c & 63))};
    }
    ASSERT_EQ(ValidUtf8Prefix(text), text.size()) << c;
    ASSERT_EQ(ValidUtf8Prefix(text.substr(0, text.size() - 1)), 0u) << c;
    ASSERT_EQ(ValidUtf8Prefix("a" + text + "\xFF"), text.size() + 1) << c;
  }
  for (const char* bad : {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF",
                          "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80"}) {
    EXPECT_EQ(ValidUtf8Prefix(bad), 0u);
  }
}

// A status travels in metadata. Clients accept 8 KiB of it, so a longer status would not arrive.
TEST(ChatTest, ALongMessageOfATemplateArrivesShortened) {
  TestServerOptions options;
  options.chat_template = "{{ raise_exception('no role ' + messages[0].role) }}";
  TestServer server(options);
  v1::GenerateRequest request;
  v1::ChatMessage* message = request.mutable_chat()->add_messages();
  for (int i = 0; i < 50'000; ++i) message->mutable_role()->append("\xE2\x82\xAC");
  const grpc::Status status = Stream(server.inference(), request).status;
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT) << status.error_message();
  EXPECT_EQ(ViolatedField(status), "chat");
  EXPECT_THAT(status.error_message(), HasSubstr("no role \xE2\x82\xAC\xE2\x82\xAC"));
  EXPECT_TRUE(status.error_message().ends_with("\xE2\x82\xAC..."));
}

}  // namespace
}  // namespace quire
