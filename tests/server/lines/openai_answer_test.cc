// Results in the shape of OpenAI's output file. What is expected was written by hand from OpenAI's
// batch guide and API reference.
// Covers server/lines/openai_answer.cc
#include "server/lines/openai_answer.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine/base/json.h"
#include "server/call/status_codec.h"

namespace quire {
namespace {

using Json = nlohmann::json;

const std::string kRequest = "request-2";

Json Parsed(const std::string& text) {
  const auto json = ParseJson(text, "result");
  EXPECT_TRUE(json.ok()) << json.status() << text;
  return json.ok() ? *json : Json();
}

v1::GenerateResult ResultOf(const std::string& text, v1::FinishReason reason) {
  v1::GenerateResult result;
  result.set_request_id("123");
  result.mutable_accepted()->set_model("gpt-4o-mini");
  result.set_text(text);
  result.mutable_finished()->set_reason(reason);
  v1::Usage& usage = *result.mutable_finished()->mutable_usage();
  usage.set_prompt_tokens(22);
  usage.set_completion_tokens(2);
  return result;
}

// The answer without the time, which was about now.
Json AnswerOf(OpenAiCall call, const v1::GenerateResult& result,
              const Tokenizer* tokenizer = nullptr) {
  const auto line = WriteOpenAiAnswer({7, kRequest, call}, result, tokenizer, 1 << 20);
  Json json = Parsed(line.value_or("too long"));
  Json& body = json["response"]["body"];
  EXPECT_GT(body["created"], 1'700'000'000);
  body.erase("created");
  return json;
}

Json ChoiceOf(OpenAiCall call, const v1::GenerateResult& result,
              const Tokenizer* tokenizer = nullptr) {
  return AnswerOf(call, result, tokenizer)["response"]["body"]["choices"][0];
}

TEST(OpenAiAnswerTest, AChatHasTheShapeOfTheBatchGuide) {
  EXPECT_EQ(AnswerOf(OpenAiCall::kChat, ResultOf("Hello.", v1::FINISH_REASON_EOS)), Json::parse(R"({
    "id": "batch_req_7", "custom_id": "request-2",
    "response": {"status_code": 200, "request_id": "123", "body": {
      "id": "chatcmpl-123", "object": "chat.completion", "model": "gpt-4o-mini",
      "choices": [{"index": 0,
        "message": {"role": "assistant", "content": "Hello.", "refusal": null},
        "logprobs": null, "finish_reason": "stop"}],
      "usage": {"prompt_tokens": 22, "completion_tokens": 2, "total_tokens": 24,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0}}}},
    "error": null})"));
}

TEST(OpenAiAnswerTest, ACompletionHasATextAndAnswersHaveTheirIndex) {
  v1::GenerateResult result = ResultOf("\n\nThis", v1::FINISH_REASON_MAX_TOKENS);
  v1::FurtherAnswer& further = *result.add_further_answers();
  further.set_text("That");
  further.mutable_finished()->set_index(1);
  further.mutable_finished()->set_reason(v1::FINISH_REASON_STOP_TEXT);
  further.mutable_finished()->mutable_request_usage()->set_prompt_tokens(5);
  further.mutable_finished()->mutable_request_usage()->set_completion_tokens(12);
  const Json body = AnswerOf(OpenAiCall::kCompletion, result)["response"]["body"];
  EXPECT_EQ(body["id"], "cmpl-123");
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"], Json::parse(R"([
    {"text": "\n\nThis", "index": 0, "logprobs": null, "finish_reason": "length"},
    {"text": "That", "index": 1, "logprobs": null, "finish_reason": "stop"}])"));
  EXPECT_EQ(body["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(body["usage"]["completion_tokens"], 12);
  EXPECT_EQ(body["usage"]["total_tokens"], 17);
}

// The call of OpenAI's reference of chat completions with functions.
TEST(OpenAiAnswerTest, CallsOfToolsAreInTheMessage) {
  v1::GenerateResult result = ResultOf("", v1::FINISH_REASON_TOOL_CALLS);
  v1::ToolCallDelta& call = *result.add_tool_calls();
  call.set_id("call_abc123");
  call.set_name("get_current_weather");
  call.set_arguments("{\n\"location\": \"Boston, MA\"\n}");
  result.set_reasoning("Hm.");
  EXPECT_EQ(ChoiceOf(OpenAiCall::kChat, result), Json::parse(R"({
    "index": 0,
    "message": {"role": "assistant", "content": null, "refusal": null, "reasoning_content": "Hm.",
      "tool_calls": [{"id": "call_abc123", "type": "function", "function": {
        "name": "get_current_weather", "arguments": "{\n\"location\": \"Boston, MA\"\n}"}}]},
    "logprobs": null, "finish_reason": "tool_calls"})"));
}

TEST(OpenAiAnswerTest, EachEndHasItsReason) {
  const std::pair<v1::FinishReason, const char*> kReasons[] = {
      {v1::FINISH_REASON_EOS, "stop"},          {v1::FINISH_REASON_STOP_TOKEN, "stop"},
      {v1::FINISH_REASON_STOP_TEXT, "stop"},    {v1::FINISH_REASON_NO_TOKEN, "stop"},
      {v1::FINISH_REASON_MAX_TOKENS, "length"}, {v1::FINISH_REASON_CONTEXT_LIMIT, "length"},
      {v1::FINISH_REASON_TRUNCATED, "length"},  {v1::FINISH_REASON_TOOL_CALLS, "tool_calls"}};
  for (const auto& [reason, word] : kReasons) {
    EXPECT_EQ(ChoiceOf(OpenAiCall::kChat, ResultOf("", reason))["finish_reason"], word);
  }
}

void AddScore(uint32_t id, float logprob, std::vector<std::pair<uint32_t, float>> top,
              v1::GenerateResult* result) {
  v1::TokenScore& score = *result->add_scores();
  score.set_token_id(id);
  score.set_logprob(logprob);
  for (const auto& [top_id, top_logprob] : top) {
    score.add_top_ids(top_id);
    score.add_top_logprobs(top_logprob);
  }
}

TEST(OpenAiAnswerTest, LogProbabilitiesHaveTheTokensTexts) {
  const auto tokenizer = Tokenizer::Load(QUIRE_SOURCE_DIR "/models/demo/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  // One that is a word behind a space, and one that is a byte of a code point.
  std::vector<int32_t> ids;
  ASSERT_TRUE((*tokenizer)->Encode(" and\u00e9", false, false, &ids).ok());
  ASSERT_EQ(ids.size(), 3u);
  v1::GenerateResult result = ResultOf("x", v1::FINISH_REASON_EOS);
  const auto word = static_cast<uint32_t>(ids[0]), byte = static_cast<uint32_t>(ids[1]);
  AddScore(word, -0.5f, {{word, -0.5f}}, &result);
  AddScore(byte, -2, {{word, -std::numeric_limits<float>::infinity()}}, &result);
  EXPECT_EQ(ChoiceOf(OpenAiCall::kChat, result, tokenizer->get())["logprobs"], Json::parse(R"({
    "content": [
      {"token": " and", "logprob": -0.5, "bytes": [32, 97, 110, 100], "top_logprobs": [
        {"token": " and", "logprob": -0.5, "bytes": [32, 97, 110, 100]}]},
      {"token": "\ufffd", "logprob": -2.0, "bytes": [195], "top_logprobs": [
        {"token": " and", "logprob": -9999.0, "bytes": [32, 97, 110, 100]}]}],
    "refusal": null})"));
  EXPECT_EQ(ChoiceOf(OpenAiCall::kCompletion, result, tokenizer->get())["logprobs"],
            Json::parse(R"({
    "tokens": [" and", "\ufffd"], "token_logprobs": [-0.5, -2.0],
    "top_logprobs": [{" and": -0.5}, {" and": -9999.0, "\ufffd": -2.0}],
    "text_offset": [0, 4]})"));
}

// Of the shortest log probabilities there are, so that a count that is too high shows.
TEST(OpenAiAnswerTest, AnAnswerMayHaveAllBytesThatALineMayHave) {
  const auto tokenizer = Tokenizer::Load(QUIRE_SOURCE_DIR "/models/demo/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  v1::GenerateResult result = ResultOf("x", v1::FINISH_REASON_EOS);
  for (uint32_t id = 0; id < 1000; ++id) AddScore(id, 0, {{id, 0}, {id + 1, 0}, {3, 0}}, &result);
  for (const Tokenizer* const texts : {tokenizer->get(), static_cast<const Tokenizer*>(nullptr)}) {
    for (const OpenAiCall call : {OpenAiCall::kChat, OpenAiCall::kCompletion}) {
      const OpenAiPlace place{7, kRequest, call};
      const auto whole = WriteOpenAiAnswer(place, result, texts, 1 << 30);
      ASSERT_TRUE(whole.has_value());
      const auto bytes = static_cast<int64_t>(whole->size());
      EXPECT_TRUE(WriteOpenAiAnswer(place, result, texts, bytes).has_value());
      EXPECT_FALSE(WriteOpenAiAnswer(place, result, texts, bytes - 1).has_value());
    }
  }
}

TEST(OpenAiAnswerTest, AFailureIsAnErrorObject) {
  const OpenAiPlace place{7, kRequest, OpenAiCall::kChat};
  const absl::Status status =
      WithOpenAiNames(OpenAiCall::kChat, InvalidField("sampling.top_p", "must be above 0"));
  EXPECT_EQ(Parsed(WriteOpenAiError(place, status)), Json::parse(R"({
    "id": "batch_req_7", "custom_id": "request-2",
    "response": {"status_code": 400, "request_id": null, "body": {"error": {
      "message": "top_p: must be above 0", "type": "invalid_request_error", "param": "top_p",
      "code": null}}},
    "error": null})"));
  const Json missing = Parsed(WriteOpenAiError(
      place, Refusal(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND", "model: not served")));
  EXPECT_EQ(missing["response"]["status_code"], 404);
  EXPECT_EQ(missing["response"]["body"]["error"]["code"], "model_not_found");
  const Json broken = Parsed(WriteOpenAiError(place, absl::InternalError("broken")));
  EXPECT_EQ(broken["response"]["status_code"], 500);
  EXPECT_EQ(broken["response"]["body"]["error"]["type"], "server_error");
}

TEST(OpenAiAnswerTest, FieldsHaveTheNamesOfTheBody) {
  const std::pair<const char*, const char*> kNames[] = {
      {"stop.max_tokens", "max_tokens"},
      {"stop.stop", "stop"},
      {"sampling.logit_bias", "logit_bias"},
      {"output.top_logprobs", "top_logprobs"},
      {"structured_output.json_schema", "response_format"},
      {"chat.messages[3].role", "messages[3].role"},
      {"chat.tools", "tools"},
      {"token_ids.ids", "prompt"},
      {"text", "prompt"},
      {"n", "n"}};
  for (const auto& [ours, theirs] : kNames) {
    EXPECT_EQ(FieldOf(WithOpenAiNames(OpenAiCall::kChat, InvalidField(ours, "x"))), theirs);
  }
  EXPECT_EQ(
      FieldOf(WithOpenAiNames(OpenAiCall::kCompletion, InvalidField("output.top_logprobs", "x"))),
      "logprobs");
}

}  // namespace
}  // namespace quire
