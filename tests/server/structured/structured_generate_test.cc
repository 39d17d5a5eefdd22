// Structured outputs over real gRPC, with a worker that would rather say something else: masks are
// what keeps it to the structure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using Code = grpc::StatusCode;

v1::GenerateRequest Choose(const std::vector<std::string>& texts, uint32_t max_tokens = 20) {
  v1::GenerateRequest request = AskFor(max_tokens);
  for (const std::string& text : texts) {
    request.mutable_structured_output()->mutable_choice()->add_texts(text);
  }
  return request;
}

TEST(StructuredGenerateTest, TheAnswerIsOneOfTheChoices) {
  TestServer server;  // would say abcdefghij, over and over
  StreamedOutput out = Stream(server.inference(), Choose({"no", "yes"}));
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.text, "no");  // the lowest byte that may begin
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_EOS);
  out = Stream(server.inference(), Choose({"no", "abc", "abd"}));
  EXPECT_EQ(out.text, "abc");
  const StreamedOutput free = Stream(server.inference(), AskFor(25));
  EXPECT_EQ(free.text, "abcdefghijabcdefghijabcde");
  server.ExpectNothingLeft();
}

TEST(StructuredGenerateTest, ExpressionsShapeTheAnswer) {
  TestServer server;
  v1::GenerateRequest request = AskFor(40);
  request.mutable_structured_output()->set_regex("[cd]{3}x*");
  const StreamedOutput out = Stream(server.inference(), request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.text.substr(0, 3), "ccc");
  server.ExpectNothingLeft();
}

TEST(StructuredGenerateTest, TheTextIsCompleteWhereMaxTokensEndIt) {
  TestServer server({.script = "aaaa"});
  v1::GenerateRequest request = AskFor(12);
  request.mutable_structured_output()->set_regex("a*bc");
  const StreamedOutput out = Stream(server.inference(), request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.text, "aaaaaaaaaabc");
}

TEST(StructuredGenerateTest, TheReasonSaysThatNoTextIsSoShort) {
  TestServer server({.script = "aaaa"});
  v1::GenerateRequest request = AskFor(6);
  request.mutable_structured_output()->set_regex("a{5,}bc");
  StreamedOutput out = Stream(server.inference(), request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.text, "aaaaaa");
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_TRUNCATED);
  request.mutable_stop()->set_max_tokens(7);
  out = Stream(server.inference(), request);
  EXPECT_EQ(out.text, "aaaaabc");
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_MAX_TOKENS);
  server.ExpectNothingLeft();
}

TEST(StructuredGenerateTest, AllowedIdsMustLeaveAFirstToken) {
  TestServer server;
  v1::GenerateRequest request = Choose({"no"});
  request.mutable_sampling()->add_allowed_token_ids('x');
  const StreamedOutput out = Stream(server.inference(), request);
  EXPECT_EQ(out.status.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(out.status.error_message(), HasSubstr("sampling.allowed_token_ids: no first"));
}

TEST(StructuredGenerateTest, RefusesByField) {
  TestServer server;
  const auto refused = [&](const v1::GenerateRequest& request) {
    const StreamedOutput out = Stream(server.inference(), request);
    EXPECT_EQ(out.status.error_code(), Code::INVALID_ARGUMENT);
    return out.status.error_message();
  };
  v1::GenerateRequest request = AskFor(9);
  request.mutable_structured_output()->set_regex("a(");
  EXPECT_THAT(refused(request), HasSubstr("structured_output.regex: "));
  request.mutable_structured_output()->set_json_schema("{\"type\": 5}");
  EXPECT_THAT(refused(request), HasSubstr("structured_output.json_schema: "));
  request.mutable_structured_output()->set_grammar("root ::= nothing");
  EXPECT_THAT(refused(request), HasSubstr("structured_output.grammar: "));
  request.mutable_structured_output()->set_lark("start: nothing");
  EXPECT_THAT(refused(request), HasSubstr("structured_output.lark: lark: line 1, column 8: "));
  request = AskFor(9);
  request.mutable_sampling()->add_logit_processors("polite");
  EXPECT_THAT(refused(request), HasSubstr("sampling.logit_processors: this server has none of"));
  request = Choose({"yes"});
  request.mutable_stop()->set_ignore_eos(true);
  EXPECT_THAT(refused(request), HasSubstr("contradicts ignore_eos"));
  request = Choose({"yes"});
  request.mutable_stop()->set_min_tokens(2);
  EXPECT_THAT(refused(request), HasSubstr("contradicts min_tokens"));
  TestServer ids({.tokenizer = false});
  request = Choose({"yes"});
  request.mutable_token_ids()->add_ids(5);
  const StreamedOutput out = Stream(ids.inference(), request);
  EXPECT_EQ(out.status.error_code(), Code::FAILED_PRECONDITION) << out.status.error_message();
  server.ExpectNothingLeft();
}

TEST(StructuredGenerateTest, ATurnOfASessionKeepsItsStructuredAnswer) {
  TestServer server;
  v1::GenerateRequest request = Choose({"no"});
  request.set_session_id("s");
  request.set_create_session(true);
  EXPECT_EQ(Stream(server.inference(), request).text, "no");
  request.clear_structured_output();
  request.mutable_stop()->set_max_tokens(3);
  const StreamedOutput out = Stream(server.inference(), request);
  EXPECT_EQ(out.text, "abc");
  EXPECT_EQ(out.finished.usage().prompt_tokens(), 3u + 3u + 2u);  // <s>hi no</s> hi
}

TEST(StructuredGenerateTest, ManyAtOnceBesideFreeOnes) {
  TestServer server;
  std::vector<std::thread> clients;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&server, i] {
      const std::string text = "say" + std::to_string(i);
      const bool free = i % 3 == 0;
      const StreamedOutput out =
          Stream(server.inference(), free ? AskFor(10) : Choose({text, "x" + text}));
      EXPECT_TRUE(out.status.ok()) << out.status.error_message();
      EXPECT_EQ(out.text, free ? "abcdefghij" : text);
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_THAT(server.Metrics(), HasSubstr("quire_mask_seconds_count"));
  server.ExpectNothingLeft();
}

}  // namespace
}  // namespace quire
