// Lines of files: requests as proto3 JSON, faults by field, results as JSON that a strict parser
// takes; what a job refuses beside.
// Covers server/lines/request_line.cc, server/jobs/job_line.cc
#include "server/lines/request_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/json.h"
#include "server/call/status_codec.h"
#include "server/jobs/job_line.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

absl::Status Read(const std::string& text, RequestLine* line) {
  return ReadJobLine({.number = 4, .text = text}, line);
}

// The result as a strict parser reads it.
nlohmann::json Written(const RequestLine& line, const absl::StatusOr<std::string>& result,
                       int64_t max_bytes = 1 << 20) {
  const LineResult written = WriteLineResult(line, result, nullptr, max_bytes);
  EXPECT_EQ(written.json.find('\n'), std::string::npos);
  const auto json = ParseJson(written.json, "result");
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *json : nlohmann::json();
}

TEST(RequestLineTest, ReadsARequest) {
  RequestLine line;
  const absl::Status status = Read(
      R"({"custom_id": "a-1", "request": {"text": "hi", "sampling": {"seed": "18446744073709551615",
          "temperature": 0.5, "logit_bias": {"7": -1}}, "stop": {"maxTokens": 3}, "n": 2}})",
      &line);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(line.number, 4u);
  EXPECT_EQ(line.custom_id, "a-1");
  EXPECT_FALSE(line.openai.has_value());
  EXPECT_EQ(line.request.text(), "hi");
  EXPECT_EQ(line.request.sampling().seed(), ~uint64_t{0});
  EXPECT_FLOAT_EQ(line.request.sampling().temperature(), 0.5f);
  EXPECT_FLOAT_EQ(line.request.sampling().logit_bias().at(7), -1);
  EXPECT_EQ(line.request.stop().max_tokens(), 3u);
  EXPECT_EQ(line.request.n(), 2u);
}

TEST(RequestLineTest, AFaultNamesItsField) {
  const struct {
    const char* text;
    const char* field;
    const char* words;
    const char* custom_id;
  } kFaults[] = {
      {"{", "line", "line", ""},
      {"[]", "line", "no JSON object", ""},
      {"{\"custom_id\":\"a\",\"custom_id\":\"b\",\"request\":{}}", "line", "duplicate", ""},
      {"{\"custom_id\":\"\xff\",\"request\":{}}", "line", "UTF-8", ""},
      {R"({"request":{}})", "custom_id", "missing", ""},
      {R"({"custom_id":7,"request":{}})", "custom_id", "no text", ""},
      {R"({"custom_id":"a"})", "request", "missing", "a"},
      {R"({"custom_id":"a","request":"hi"})", "request", "no JSON object", "a"},
      {R"({"custom_id":"a","request":{},"method":"POST"})", "line", "member \"method\"", "a"},
      {R"({"custom_id":"a","request":{"texts":"hi"}})", "request", "texts", "a"},
      {R"({"custom_id":"a","request":{"stop":{"max_tokens":-1}}})", "request", "max_tokens", "a"},
      {R"({"custom_id":"a","request":{"text":"hi","session_id":"s"}})", "request.session_id",
       "twice", "a"},
      {R"({"custom_id":"a","request":{"text":"hi","priority":1}})", "request.priority", "whole job",
       "a"},
  };
  for (const auto& fault : kFaults) {
    RequestLine line;
    const absl::Status status = Read(fault.text, &line);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << fault.text;
    EXPECT_EQ(FieldOf(status), fault.field) << fault.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(fault.words));
    EXPECT_EQ(line.custom_id, fault.custom_id) << fault.text;
  }
}

TEST(RequestLineTest, DepthIsBounded) {
  std::string deep(100'000, '[');
  RequestLine line;
  EXPECT_TRUE(absl::IsInvalidArgument(
      Read("{\"custom_id\":\"a\",\"request\":{\"text\":" + deep + "}}", &line)));
}

TEST(RequestLineTest, WritesAResultOnOneLine) {
  v1::GenerateResult result;
  result.set_text("two\nlines \"quoted\"");
  result.mutable_finished()->set_seed(~uint64_t{0});
  const auto json = Written({.number = 9, .custom_id = "a\n\"b\""}, result.SerializeAsString());
  EXPECT_EQ(json["custom_id"], "a\n\"b\"");
  EXPECT_EQ(json["line"], 9);
  EXPECT_EQ(json["result"]["text"], "two\nlines \"quoted\"");
  EXPECT_EQ(json["result"]["finished"]["seed"], "18446744073709551615");
}

TEST(RequestLineTest, WritesAFailure) {
  const auto json = Written({.number = 9, .custom_id = "a"}, InvalidField("request.n", "is bad"));
  EXPECT_EQ(json["status"]["code"], 3);
  EXPECT_EQ(json["status"]["field"], "request.n");
  EXPECT_EQ(json["status"]["message"], "request.n: is bad");
  EXPECT_FALSE(json.contains("result"));
}

TEST(RequestLineTest, ALineThatIsTooLongIsAFault) {
  RequestLine line;
  const absl::Status status = ReadJobLine({.number = 4, .text = "{", .too_long = true}, &line);
  EXPECT_EQ(FieldOf(status), "line");
  EXPECT_THAT(std::string(status.message()), HasSubstr("4194304 bytes"));
}

// A fault may name what the client wrote, however long that is.
TEST(RequestLineTest, AFailureIsShort) {
  const std::string name(1 << 20, 'm');
  const std::string openai = R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", )";
  const std::string lines[] = {
      openai + R"("body": {"prompt": "x", ")" + name + R"(": 1}})",
      R"({"custom_id": "a", "request": {"text": "x"}, ")" + name + R"(": 1})"};
  for (const std::string& text : lines) {
    RequestLine line;
    const absl::Status fault = Read(text, &line);
    ASSERT_FALSE(fault.ok());
    const LineResult written = WriteLineResult(line, fault, nullptr, 1 << 20);
    EXPECT_LT(written.json.size(), 4096u);
    EXPECT_LT(FieldOf(written.status).size(), 300u);
  }
}

TEST(RequestLineTest, AResultThatIsTooLongIsAFailure) {
  v1::GenerateResult result;
  result.set_text(std::string(2000, 'x'));
  for (const auto& form : {std::optional<OpenAiCall>(), std::optional(OpenAiCall::kChat)}) {
    const RequestLine line{.number = 1, .custom_id = "a", .openai = form};
    const LineResult written = WriteLineResult(line, result.SerializeAsString(), nullptr, 1000);
    EXPECT_EQ(ReasonOf(written.status), "REPLY_TOO_LARGE");
    EXPECT_LT(written.json.size(), 1000u);
  }
}

}  // namespace
}  // namespace quire
