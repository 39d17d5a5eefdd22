// Bodies in OpenAI's batch format. The lines are those of OpenAI's published guides and API
// reference, the requests expected were written by hand.
// Covers server/lines/openai_body.cc, server/lines/openai_chat.cc, server/lines/openai_member.cc,
// server/lines/json_parts.cc
#include "server/lines/openai_body.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "server/call/status_codec.h"
#include "server/lines/json_parts.h"
#include "server/lines/openai_answer.h"
#include "server/lines/request_line.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

std::string LineOf(const std::string& url, const std::string& body) {
  return R"({"custom_id": "request-1", "method": "POST", "url": ")" + url + R"(", "body": )" +
         body + "}";
}
std::string ChatLine(const std::string& body) { return LineOf("/v1/chat/completions", body); }
std::string CompletionLine(const std::string& body) { return LineOf("/v1/completions", body); }

// The request of a line that has no fault, without what every such request has.
std::string RequestOf(const std::string& text) {
  RequestLine line{.number = 1};
  const absl::Status status = ReadRequestLine(text, &line);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(line.openai.has_value());
  EXPECT_EQ(line.custom_id, "request-1");
  EXPECT_FALSE(line.request.output().token_ids());
  line.request.mutable_output()->clear_token_ids();
  if (line.request.output().ByteSizeLong() == 0) line.request.clear_output();
  return line.request.DebugString();
}

// A request in protobuf's text format.
std::string Expected(const std::string& text) {
  v1::GenerateRequest request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
  return request.DebugString();
}

TEST(OpenAiBodyTest, ReadsTheLineOfTheBatchGuide) {
  EXPECT_EQ(RequestOf(R"({"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions",
      "body": {"model": "gpt-3.5-turbo-0125", "messages": [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Hello world!"}], "max_tokens": 1000}})"),
            Expected(R"(
                model: "gpt-3.5-turbo-0125"
                chat {
                  messages { role: "system" content: "You are a helpful assistant." }
                  messages { role: "user" content: "Hello world!" }
                }
                stop { max_tokens: 1000 })"));
}

// Not the default of the model's generation_config.json, which an unset field would take.
TEST(OpenAiBodyTest, MinusOneOfTopKIsAllTokens) {
  EXPECT_EQ(RequestOf(ChatLine(R"({"messages": [{"role": "user", "content": "x"}],
      "top_k": -1})")),
            Expected(R"(
                chat { messages { role: "user" content: "x" } }
                sampling { top_k: 0 })"));
}

TEST(OpenAiBodyTest, ReadsEveryParameter) {
  EXPECT_EQ(RequestOf(ChatLine(R"({"messages": [{"role": "user", "content": "x"}],
      "max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.25, "n": 2, "stop": ["a", "b"],
      "seed": -1, "presence_penalty": 1, "frequency_penalty": -0.5, "logit_bias": {"50256": -100},
      "logprobs": true, "top_logprobs": 3, "user": "user-1234", "stream": false,
      "top_k": 4, "min_p": 0.125, "repetition_penalty": 1.5, "min_tokens": 2,
      "ignore_eos": true, "response_format": {"type": "json_object"}})")),
            Expected(R"(
                chat { messages { role: "user" content: "x" } }
                sampling {
                  temperature: 0.5 top_k: 4 top_p: 0.25 min_p: 0.125 repetition_penalty: 1.5
                  presence_penalty: 1 frequency_penalty: -0.5 seed: 18446744073709551615
                  logit_bias { key: 50256 value: -100 }
                }
                stop { max_tokens: 7 min_tokens: 2 stop: "a" stop: "b" ignore_eos: true }
                output { top_logprobs: 3 }
                n: 2
                structured_output { json_object: true })"));
}

TEST(OpenAiBodyTest, ReadsCompletions) {
  EXPECT_EQ(RequestOf(CompletionLine(R"({"model": "m", "prompt": "Say this is a test",
      "max_tokens": 7, "temperature": 0, "logprobs": 2, "stop": "\n"})")),
            Expected(R"(
                model: "m" text: "Say this is a test" sampling { temperature: 0 }
                stop { max_tokens: 7 stop: "\n" } output { top_logprobs: 2 })"));
  // OpenAI's default of max_tokens is 16.
  EXPECT_EQ(RequestOf(CompletionLine(R"({"prompt": [5, 0, 7]})")),
            Expected("token_ids { ids: [5, 0, 7] } stop { max_tokens: 16 }"));
}

// The conversation of OpenAI's function calling guide.
TEST(OpenAiBodyTest, ToolsKeepTheirOrderAndArgumentsBecomeObjects) {
  const std::string tool =
      R"({"type": "function", "function": {"name": "get_weather", "description": "Weather.",)"
      R"( "parameters": {"type": "object", "properties": {"location": {"type": "string"},)"
      R"( "aa": {"type": "number", "minimum": 1.0e2}}, "required": ["location"]}}})";
  RequestLine line;
  const absl::Status status = ReadRequestLine(
      ChatLine(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "In Paris?"},
        {"type": "text", "text": "Now?"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function",
          "function": {"name": "get_weather", "arguments": "{\"location\": \"Paris\"}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "14", "name": "get_weather"}],
      "tools": [)" +
               tool + R"(], "tool_choice": {"type": "function",
        "function": {"name": "get_weather"}}})"),
      &line);
  ASSERT_TRUE(status.ok()) << status;
  const v1::ChatMessages& chat = line.request.chat();
  ASSERT_EQ(chat.messages_size(), 3);
  EXPECT_EQ(chat.messages(0).content(), "In Paris?\nNow?");
  EXPECT_FALSE(chat.messages(0).has_members());
  EXPECT_FALSE(chat.messages(1).has_content());
  EXPECT_EQ(chat.messages(1).members(),
            R"({"tool_calls":[{"id":"call_1","type":"function","function":{"name":"get_weather",)"
            R"("arguments":{"location": "Paris"}}}],"content":null})");
  EXPECT_EQ(chat.messages(2).members(), R"({"tool_call_id":"call_1","name":"get_weather"})");
  ASSERT_EQ(chat.tools_size(), 1);
  EXPECT_EQ(chat.tools(0), tool);
  EXPECT_EQ(chat.tool_choice().mode(), v1::ToolChoice::MODE_FUNCTION);
  EXPECT_EQ(chat.tool_choice().function(), "get_weather");
}

TEST(OpenAiBodyTest, ReadsToolChoices) {
  const std::pair<const char*, const char*> kChoices[] = {
      {"none", "MODE_NONE"}, {"auto", "MODE_AUTO"}, {"required", "MODE_REQUIRED"}};
  for (const auto& [choice, mode] : kChoices) {
    EXPECT_EQ(
        RequestOf(ChatLine(R"({"messages": [], "tool_choice": ")" + std::string(choice) + "\"}")),
        Expected("chat { tool_choice { mode: " + std::string(mode) + " } }"));
  }
}

// The schema of OpenAI's guide to structured outputs: properties out of the alphabet's order.
TEST(OpenAiBodyTest, ASchemaGoesOnAsItIsWritten) {
  const std::string schema =
      R"({"type": "object", "properties": {"steps": {"type": "array"}, "final_answer":)"
      R"( {"type": "string"}}, "required": ["steps", "final_answer"]})";
  const std::string request = RequestOf(ChatLine(
      R"({"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema",
          "json_schema": {"name": "math_response", "strict": true, "schema": )" +
      schema + "}}}"));
  v1::GenerateRequest read;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(request, &read));
  EXPECT_EQ(read.structured_output().json_schema(), schema);
}

TEST(OpenAiBodyTest, NullIsAbsent) {
  EXPECT_EQ(RequestOf(ChatLine(R"({"messages": [{"role": "user", "content": "x", "name": null}],
      "stop": null, "logit_bias": null, "audio": null, "max_tokens": null})")),
            Expected(R"(chat { messages { role: "user" content: "x" } })"));
}

// Clients write out the members that an answer of theirs had not.
TEST(OpenAiBodyTest, NullIsAbsentInPartsOfMembers) {
  EXPECT_EQ(RequestOf(ChatLine(R"({"messages": [
        {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "index": null,
          "function": {"name": "f", "arguments": "{}", "parsed_arguments": null}}]},
        {"role": "user", "content": [{"type": "text", "text": "x", "image_url": null}]}],
      "logit_bias": {"5": null, "7": 1},
      "response_format": {"type": "text", "json_schema": null},
      "tool_choice": {"type": "function", "function": {"name": "f"}, "custom": null}})")),
            RequestOf(ChatLine(R"({"messages": [
        {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function",
          "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "user", "content": [{"type": "text", "text": "x"}]}],
      "logit_bias": {"7": 1},
      "response_format": {"type": "text"},
      "tool_choice": {"type": "function", "function": {"name": "f"}}})")));
}

void ExpectFault(const std::string& text, const std::string& field, const std::string& words) {
  RequestLine line;
  const absl::Status status = ReadRequestLine(text, &line);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << text << ": " << status;
  EXPECT_EQ(FieldOf(status), field) << text;
  EXPECT_THAT(std::string(status.message()), HasSubstr(words)) << text;
  EXPECT_TRUE(line.openai.has_value()) << text;
}

TEST(OpenAiBodyTest, AnAnswersMessageCanBeSentBack) {
  v1::GenerateResult result;
  result.set_reasoning("Hm.");
  v1::ToolCallDelta* const call = result.add_tool_calls();
  call->set_id("abc");
  call->set_name("f");
  call->set_arguments("{\"a\": 1}");
  result.mutable_finished()->set_reason(v1::FINISH_REASON_TOOL_CALLS);
  const std::string id = "request-1";
  const auto answer = WriteOpenAiAnswer({1, id, OpenAiCall::kChat}, result, nullptr, 1 << 20);
  const auto json = nlohmann::json::parse(answer.value_or("null"));
  const auto message = json[nlohmann::json::json_pointer("/response/body/choices/0/message")];
  const auto body = nlohmann::json{{"messages", nlohmann::json::array({message})}};
  RequestLine line;
  const absl::Status status = ReadRequestLine(ChatLine(body.dump()), &line);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(nlohmann::json::parse(line.request.chat().messages(0).members()),
            nlohmann::json::parse(R"({"content": null, "reasoning_content": "Hm.", "tool_calls":
                [{"id": "abc", "type": "function",
                  "function": {"name": "f", "arguments": {"a": 1}}}]})"));
  ExpectFault(ChatLine(R"({"messages": [{"role": "assistant", "reasoning_content": 1}]})"),
              "messages[0].reasoning_content", "text");
}

TEST(OpenAiBodyTest, AMemberWithoutANameIsNamedToo) {
  ExpectFault(CompletionLine(R"({"prompt": "x", "": 1})"), R"("")", "is not served");
}

// Every member of OpenAI's and vLLM's reference that is not served.
TEST(OpenAiBodyTest, OtherMembersAreRefusedByName) {
  const char* const kChat[] = {
      "audio", "function_call", "functions", "metadata", "modalities", "parallel_tool_calls",
      "prediction", "prompt_cache_key", "reasoning_effort", "safety_identifier", "service_tier",
      "store", "stream_options", "verbosity", "web_search_options", "prompt", "best_of", "echo",
      // vLLM's own.
      "use_beam_search", "length_penalty", "stop_token_ids", "include_stop_str_in_output",
      "skip_special_tokens", "truncate_prompt_tokens", "prompt_logprobs", "allowed_token_ids",
      "bad_words", "add_generation_prompt", "continue_final_message", "chat_template",
      "chat_template_kwargs", "documents", "guided_json", "structured_outputs", "priority",
      "request_id", "logits_processors", "cache_salt", "kv_transfer_params", "Temperature"};
  for (const std::string name : kChat) {
    ExpectFault(ChatLine(R"({"messages": [], ")" + name + R"(": 1})"), name, "is not served");
  }
  for (const std::string name : {"best_of", "echo", "suffix", "messages", "tools", "tool_choice",
                                 "top_logprobs", "max_completion_tokens", "stream_options"}) {
    ExpectFault(CompletionLine(R"({"prompt": "x", ")" + name + R"(": 1})"), name, "is not served");
  }
}

TEST(OpenAiBodyTest, AWrongValueIsAFaultOfItsMember) {
  const struct {
    const char* member;
    const char* field;
    const char* words;
  } kFaults[] = {
      {R"("model": 1)", "model", "text"},
      {R"("temperature": "1")", "temperature", "number"},
      {R"("n": 1.5)", "n", "whole number"},
      {R"("n": -1)", "n", "whole number"},
      {R"("max_tokens": 4294967296)", "max_tokens", "whole number"},
      {R"("max_tokens": 1, "max_completion_tokens": 1)", "max_completion_tokens", "one limit"},
      {R"("stop": 1)", "stop", "text"},
      {R"("stop": ["a", 1])", "stop", "text"},
      {R"("seed": 1.0)", "seed", "whole number"},
      {R"("logit_bias": [])", "logit_bias", "object"},
      {R"("logit_bias": {"x": 1})", "logit_bias", "token id"},
      {R"("logit_bias": {"1": "x"})", "logit_bias", "number"},
      {R"("logprobs": 1)", "logprobs", "true or false"},
      {R"("top_logprobs": 1)", "top_logprobs", "logprobs"},
      {R"("logprobs": false, "top_logprobs": 1)", "top_logprobs", "logprobs"},
      {R"("ignore_eos": 0)", "ignore_eos", "true or false"},
      {R"("user": 1)", "user", "text"},
      {R"("stream": true)", "stream", "one result"},
      {R"("response_format": "text")", "response_format", "object"},
      {R"("response_format": {})", "response_format.type", "json_schema"},
      {R"("response_format": {"type": "xml"})", "response_format.type", "json_schema"},
      {R"("response_format": {"type": "text", "a": 1})", "response_format.a", "not served"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema", "missing"},
      {R"("response_format": {"type": "json_schema", "json_schema": null})",
       "response_format.json_schema", "missing"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "a"}})",
       "response_format.json_schema.schema", "missing"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"a": 1}})",
       "response_format.json_schema.a", "not served"},
      {R"("tools": {})", "tools", "list"},
      {R"("tools": [1])", "tools[0]", "object"},
      {R"("tools": [{"type": "custom"}])", "tools[0].type", "function"},
      {R"("tool_choice": "any")", "tool_choice", "required"},
      {R"("tool_choice": {"type": "function"})", "tool_choice", "required"},
      {R"("tool_choice": {"type": "allowed_tools", "allowed_tools": {}})", "tool_choice", "name"},
  };
  for (const auto& fault : kFaults) {
    const std::string body = std::string(R"({"messages": [], )") + fault.member + "}";
    ExpectFault(ChatLine(body), fault.field, fault.words);
  }
  ExpectFault(CompletionLine(R"({"prompt": ["a", "b"]})"), "prompt", "one prompt");
  ExpectFault(CompletionLine(R"({"prompt": [[1], [2]]})"), "prompt", "one prompt");
  ExpectFault(CompletionLine(R"({"prompt": 1})"), "prompt", "text");
  ExpectFault(CompletionLine(R"({})"), "prompt", "missing");
  ExpectFault(ChatLine(R"({})"), "messages", "missing");
}

TEST(OpenAiBodyTest, AMessageThatCannotBeServedIsRefusedByItsPart) {
  const struct {
    const char* message;
    const char* field;
    const char* words;
  } kFaults[] = {
      {R"(1)", "messages[1]", "object"},
      {R"({"role": 1})", "messages[1].role", "text"},
      {R"({"content": 1})", "messages[1].content", "text parts"},
      {R"({"content": [{"type": "image_url", "image_url": {"url": "x"}}]})",
       "messages[1].content[0].type", "text alone"},
      {R"({"content": [{"type": "text", "text": "a"}, {"type": "text"}]})",
       "messages[1].content[1].text", "missing"},
      {R"({"content": [{"text": "a"}]})", "messages[1].content[0].type", "missing"},
      {R"({"content": [{"type": "text", "text": "a", "cache_control": {}}]})",
       "messages[1].content[0].cache_control", "not served"},
      {R"({"function_call": {}})", "messages[1].function_call", "not served"},
      {R"({"refusal": "no"})", "messages[1].refusal", "not served"},
      {R"({"name": 1})", "messages[1].name", "text"},
      {R"({"tool_calls": {}})", "messages[1].tool_calls", "list"},
      {R"({"tool_calls": [{"type": "custom"}]})", "messages[1].tool_calls[0].type", "function"},
      {R"({"tool_calls": [{"function": {"arguments": {}}}]})",
       "messages[1].tool_calls[0].function.arguments", "text"},
      {R"({"tool_calls": [{"function": {"arguments": "{"}}]})",
       "messages[1].tool_calls[0].function.arguments", "JSON object"},
      {R"({"tool_calls": [{"function": {"arguments": "[]"}}]})",
       "messages[1].tool_calls[0].function.arguments", "JSON object"},
      {R"({"tool_calls": [{"function": {"x": 1}}]})", "messages[1].tool_calls[0].function.x",
       "not served"},
  };
  for (const auto& fault : kFaults) {
    const std::string body =
        std::string(R"({"messages": [{"role": "user", "content": "x"}, )") + fault.message + "]}";
    ExpectFault(ChatLine(body), fault.field, fault.words);
  }
}

TEST(OpenAiBodyTest, ALineHasItsMembers) {
  ExpectFault(R"({"custom_id": "a", "url": "/v1/completions", "body": {}})", "method", "POST");
  ExpectFault(R"({"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}})",
              "method", "POST");
  ExpectFault(R"({"custom_id": "a", "method": "POST", "body": {}})", "url", "/v1/completions");
  ExpectFault(LineOf("/v1/embeddings", "{}"), "url", "/v1/completions");
  ExpectFault(R"({"custom_id": "a", "method": "POST", "url": "/v1/completions"})", "body",
              "missing");
  ExpectFault(CompletionLine("[]"), "body", "object");
  ExpectFault(R"({"method": "POST", "url": "/v1/completions", "body": {}})", "custom_id",
              "missing");
  ExpectFault(R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {},
                  "x": 1})",
              "line", "member \"x\"");
}

TEST(JsonPartsTest, PartsAreWrittenAsTheyWere) {
  const auto parts = SplitJson(
      " { \"a\\\"}\" : [1, {\"b\": \"]\"}] ,\"b\":-1.50e3,\n"
      "\"c\":\"\\\\\"}");
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].key, "a\"}");
  EXPECT_EQ(parts[0].text, "[1, {\"b\": \"]\"}]");
  EXPECT_EQ(parts[1].text, "-1.50e3");
  EXPECT_EQ(parts[2].text, "\"\\\\\"");
  EXPECT_TRUE(SplitJson("[ ]").empty());
  EXPECT_EQ(SplitJson("[true,null ]")[1].text, "null");
  EXPECT_EQ(JsonMember("{\"a\":1}", "b"), "");
}

}  // namespace
}  // namespace quire
