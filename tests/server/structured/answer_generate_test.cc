// Reasoning and tool calls over real gRPC, with a worker that writes a script byte by byte.
// Covers server/structured/answer_codec.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/test_server.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using Code = grpc::StatusCode;

constexpr char kTool[] = R"({"type": "function", "function": {"name": "get_time"}})";
constexpr char kCall[] =
    "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"in\": "
    "\"Rome\"}}\n</tool_call>";
// Says whether it was shown tools.
constexpr char kTemplate[] =
    "{{ 'T' if tools else 'N' }}{% for m in messages %}{{ m.content }}{% endfor %}";

std::vector<int32_t> ScriptOf(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  ids.push_back(kTestEos);
  return ids;
}

TestServerOptions Writes(const std::string& text, const std::string& reasoning = "qwen3",
                         const std::string& calls = "hermes") {
  return {.script_ids = ScriptOf(text),
          .chat_template = kTemplate,
          .reasoning_parser = reasoning,
          .tool_call_parser = calls};
}

v1::GenerateRequest Chat(const std::string& content, const std::vector<std::string>& tools = {}) {
  v1::GenerateRequest request;
  v1::ChatMessage* message = request.mutable_chat()->add_messages();
  message->set_role("user");
  message->set_content(content);
  for (const std::string& tool : tools) request.mutable_chat()->add_tools(tool);
  return request;
}

v1::GenerateRequest Choose(v1::GenerateRequest request, v1::ToolChoice::Mode mode) {
  request.mutable_chat()->mutable_tool_choice()->set_mode(mode);
  return request;
}

TEST(AnswerGenerateTest, ReasoningCallsAndTextComeApart) {
  TestServer server(Writes("<think>\nWhich town?\n</think>\n\nI look.\n" + std::string(kCall)));
  const StreamedOutput out = Stream(server.inference(), Chat("hi", {kTool}));
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.reasoning, "Which town?");
  EXPECT_EQ(out.text, "I look.");
  ASSERT_EQ(out.calls.size(), 1u);
  EXPECT_EQ(out.calls[0].name(), "get_time");
  EXPECT_EQ(out.calls[0].arguments(), "{\"in\": \"Rome\"}");
  EXPECT_EQ(out.calls[0].id().size(), 9u);
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_TOOL_CALLS);
  EXPECT_EQ(out.finished.stop_token_id(), static_cast<uint32_t>(kTestEos));
  EXPECT_EQ(out.finished.usage().reasoning_tokens(), 28u);  // bytes up to </think>
  EXPECT_TRUE(out.gap_free);
  server.ExpectNothingLeft();
}

TEST(AnswerGenerateTest, OneReplyHasTheSameParts) {
  TestServer server(Writes("<think>Hm.</think>" + std::string(kCall) + "\n" + kCall));
  grpc::ClientContext context;
  v1::GenerateResult result;
  const auto status = server.inference().GenerateUnary(&context, Chat("hi", {kTool}), &result);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(result.reasoning(), "Hm.");
  EXPECT_EQ(result.text(), "");
  ASSERT_EQ(result.tool_calls_size(), 2);
  EXPECT_EQ(result.tool_calls(1).index(), 1u);
  EXPECT_EQ(result.tool_calls(1).arguments(), "{\"in\": \"Rome\"}");
  EXPECT_NE(result.tool_calls(0).id(), result.tool_calls(1).id());
  EXPECT_EQ(result.finished().reason(), v1::FINISH_REASON_TOOL_CALLS);
}

TEST(AnswerGenerateTest, WhoDoesNotAskGetsTextAsItComes) {
  const std::string script = "<think>Hm.</think>" + std::string(kCall);
  TestServer server(Writes(script));
  v1::GenerateRequest request = AskFor(500);  // no chat
  StreamedOutput out = Stream(server.inference(), request);
  EXPECT_EQ(out.text, script);
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_EOS);
  EXPECT_FALSE(out.finished.usage().has_reasoning_tokens());
  request = Chat("hi");  // and no tools
  request.mutable_reasoning()->set_split(false);
  out = Stream(server.inference(), request);
  EXPECT_EQ(out.text, script);
  request = AskFor(500);
  request.mutable_reasoning()->set_split(true);
  out = Stream(server.inference(), request);
  EXPECT_EQ(out.reasoning, "Hm.");
  EXPECT_EQ(out.text, kCall);
}

TEST(AnswerGenerateTest, ThePromptSaysWhetherReasoningHasBegun) {
  TestServer server(Writes("Hm.\n</think>\n\nYes."));
  StreamedOutput out = Stream(server.inference(), Chat("hi<think>\n"));
  EXPECT_EQ(out.reasoning, "Hm.");
  EXPECT_EQ(out.text, "Yes.");
  out = Stream(server.inference(), Chat("hi<think>\n\n</think>\n\n"));
  EXPECT_EQ(out.reasoning, "");
  EXPECT_EQ(out.text, "Hm.\n</think>\n\nYes.");
  v1::GenerateRequest request;
  for (const char byte : std::string("hi<think>")) {
    request.mutable_token_ids()->add_ids(static_cast<uint8_t>(byte));
  }
  request.mutable_reasoning()->set_split(true);
  out = Stream(server.inference(), request);
  EXPECT_EQ(out.reasoning, "Hm.");
}

TEST(AnswerGenerateTest, NoneShowsTheTemplateNoTools) {
  TestServer server(Writes(kCall));
  StreamedOutput out =
      Stream(server.inference(), Choose(Chat("", {kTool}), v1::ToolChoice::MODE_NONE));
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.text, kCall);
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_EOS);
  for (const auto& [mode, shown] :
       {std::pair(v1::ToolChoice::MODE_NONE, 'N'), std::pair(v1::ToolChoice::MODE_AUTO, 'T')}) {
    v1::TokenizeRequest request;
    *request.mutable_chat() = Choose(Chat("", {kTool}), mode).chat();
    v1::TokenizeResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(server.inference().Tokenize(&context, request, &response).ok());
    EXPECT_EQ(response.token_ids(0), static_cast<uint32_t>(shown));
  }
}

TEST(AnswerGenerateTest, ACutCallAndAStopStringEndWithTheirReason) {
  TestServer server(Writes(kCall));
  v1::GenerateRequest request = Chat("hi", {kTool});
  request.mutable_stop()->set_max_tokens(55);
  StreamedOutput out = Stream(server.inference(), request);
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_MAX_TOKENS);
  ASSERT_EQ(out.calls.size(), 1u);
  EXPECT_EQ(out.calls[0].arguments(), "{\"in\": \"R");
  request = Chat("hi", {kTool});
  request.mutable_stop()->add_stop("arguments");
  out = Stream(server.inference(), request);
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_STOP_TEXT);
  EXPECT_EQ(out.text, "<tool_call>\n{\"name\": \"get_time\", \"");
}

TEST(AnswerGenerateTest, AStructureIsThatOfTheAnswer) {
  TestServer server(Writes("Hm.</think>xyz"));
  v1::GenerateRequest request = Chat("hi<think>");
  request.mutable_structured_output()->mutable_choice()->add_texts("yes");
  request.mutable_structured_output()->mutable_choice()->add_texts("no");
  StreamedOutput out = Stream(server.inference(), request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.reasoning, "Hm.");
  EXPECT_EQ(out.text, "no");
  EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_EOS);
  // So few tokens that the reasoning has to be cut short.
  request.mutable_stop()->set_max_tokens(12);
  out = Stream(server.inference(), request);
  EXPECT_EQ(out.reasoning, "Hm");
  EXPECT_EQ(out.text, "no");
  // Without reasoning the structure is that of the whole text.
  request.mutable_reasoning()->set_split(false);
  out = Stream(server.inference(), request);
  EXPECT_EQ(out.text, "no");
  server.ExpectNothingLeft();
}

constexpr char kTownTool[] = R"({"function": {"name": "get_time", "parameters": {
    "type": "object", "properties": {"in": {"enum": ["Rome", "Oslo"]}}, "required": ["in"]}}})";

void ExpectTown(const v1::ToolCallDelta& call) {
  EXPECT_EQ(call.name(), "get_time");
  const auto arguments = nlohmann::json::parse(call.arguments());
  ASSERT_EQ(arguments.size(), 1u);
  EXPECT_THAT(arguments["in"].get<std::string>(), ::testing::AnyOf("Rome", "Oslo"));
}

TEST(AnswerGenerateTest, ARequiredCallFollowsTheToolsSchema) {
  for (const char* family : {"hermes", "mistral", "llama3_json"}) {
    TestServer server(Writes("Hm.</think>zzz", "qwen3", family));
    v1::GenerateRequest request =
        Choose(Chat("hi<think>", {kTownTool}), v1::ToolChoice::MODE_FUNCTION);
    request.mutable_chat()->mutable_tool_choice()->set_function("get_time");
    StreamedOutput out = Stream(server.inference(), request);
    ASSERT_TRUE(out.status.ok()) << out.status.error_message();
    EXPECT_EQ(out.reasoning, "Hm.");
    EXPECT_EQ(out.text, "");
    ASSERT_EQ(out.calls.size(), 1u);
    ExpectTown(out.calls[0]);
    EXPECT_EQ(out.finished.reason(), v1::FINISH_REASON_TOOL_CALLS);
    // The script's worker goes on with calls as long as it may.
    request = Choose(Chat("hi", {kTownTool}), v1::ToolChoice::MODE_REQUIRED);
    request.mutable_stop()->set_max_tokens(500);
    out = Stream(server.inference(), request);
    EXPECT_EQ(out.text, "");
    EXPECT_GE(out.calls.size(), 1u);
    for (const v1::ToolCallDelta& call : out.calls) ExpectTown(call);
    server.ExpectNothingLeft();
  }
}

TEST(AnswerGenerateTest, WrongChoicesAreNamed) {
  TestServer server(Writes("x"));
  const auto refused = [&server](const v1::GenerateRequest& request) {
    return ViolatedField(Stream(server.inference(), request).status);
  };
  v1::GenerateRequest request = Choose(Chat("hi", {kTool}), v1::ToolChoice::MODE_FUNCTION);
  EXPECT_EQ(refused(request), "chat.tool_choice.function");
  request.mutable_chat()->mutable_tool_choice()->set_function("other");
  EXPECT_EQ(refused(request), "chat.tool_choice.function");
  request = Choose(Chat("hi", {kTool}), v1::ToolChoice::MODE_REQUIRED);
  request.mutable_structured_output()->set_regex("a");
  EXPECT_EQ(refused(request), "structured_output");
  request = Choose(Chat("hi", {kTool, R"({"name": "f", "parameters": {"type": "string"}})"}),
                   v1::ToolChoice::MODE_REQUIRED);
  EXPECT_EQ(refused(request), "chat.tools[1]");
  request = Choose(Chat("hi", {R"({"name": "f", "parameters": {"not": {}}})"}),
                   v1::ToolChoice::MODE_REQUIRED);
  EXPECT_EQ(refused(request), "chat.tools");
  request = Choose(Chat("hi", {kTool}), v1::ToolChoice::MODE_REQUIRED);
  request.mutable_stop()->set_min_tokens(3);
  EXPECT_EQ(refused(request), "chat.tools");
}

TEST(AnswerGenerateTest, ReasoningHasBounds) {
  TestServer server(Writes("Hm, hm, hm.</think>Well."));
  v1::GenerateRequest request = Chat("hi<think>\n");
  request.mutable_reasoning()->set_max_tokens(6);
  StreamedOutput out = Stream(server.inference(), request);
  ASSERT_TRUE(out.status.ok()) << out.status.error_message();
  EXPECT_EQ(out.reasoning, "Hm, hm");
  EXPECT_EQ(out.finished.usage().reasoning_tokens(), 14u);  // with the marker's 8
  request.mutable_stop()->set_max_tokens(9);  // cuts the marker; the answer has no structure
  EXPECT_EQ(Stream(server.inference(), request).finished.reason(), v1::FINISH_REASON_MAX_TOKENS);
  request.mutable_structured_output()->mutable_choice()->add_texts("no");
  EXPECT_EQ(Stream(server.inference(), request).finished.reason(), v1::FINISH_REASON_TRUNCATED);
  request = Chat("hi<think>\n");
  request.mutable_reasoning()->set_max_tokens(30);
  request.mutable_reasoning()->set_min_tokens(25);
  out = Stream(server.inference(), request);
  EXPECT_GE(out.finished.usage().reasoning_tokens(), 33u);
  EXPECT_LE(out.finished.usage().reasoning_tokens(), 38u);
  request = AskFor(40);  // no chat, and it has not begun
  request.mutable_reasoning()->set_max_tokens(3);
  out = Stream(server.inference(), request);
  EXPECT_EQ(out.text, "Hm, hm, hm.</think>Well.");
  server.ExpectNothingLeft();
}

TEST(AnswerGenerateTest, WrongBoundsAreNamed) {
  TestServer server(Writes("x"));
  const auto refused = [&server](const v1::Reasoning& reasoning) {
    v1::GenerateRequest request = Chat("hi");
    *request.mutable_reasoning() = reasoning;
    return ViolatedField(Stream(server.inference(), request).status);
  };
  v1::Reasoning bounds;
  bounds.set_max_tokens(3);
  bounds.set_min_tokens(4);
  EXPECT_EQ(refused(bounds), "reasoning.min_tokens");
  bounds.set_max_tokens(1u << 31);
  EXPECT_EQ(refused(bounds), "reasoning.max_tokens");
  bounds.set_max_tokens(5);
  bounds.set_split(false);
  EXPECT_EQ(refused(bounds), "reasoning.split");
}

TEST(AnswerGenerateTest, RefusalsSayWhatIsMissing) {
  TestServer server(Writes("x", "", ""));
  v1::GenerateRequest request = Chat("hi");
  request.mutable_reasoning()->set_split(true);
  StreamedOutput out = Stream(server.inference(), request);
  EXPECT_EQ(out.status.error_code(), Code::FAILED_PRECONDITION);
  EXPECT_EQ(Reason(out.status), "NO_REASONING_FORMAT");
  EXPECT_THAT(out.status.error_message(), HasSubstr("--reasoning-parser"));
  out = Stream(server.inference(), Choose(Chat("hi", {kTool}), v1::ToolChoice::MODE_AUTO));
  EXPECT_EQ(out.status.error_code(), Code::FAILED_PRECONDITION);
  EXPECT_EQ(Reason(out.status), "NO_TOOL_CALL_FORMAT");
  EXPECT_THAT(out.status.error_message(), HasSubstr("--tool-call-parser"));
  EXPECT_TRUE(Stream(server.inference(), Chat("hi", {kTool})).status.ok());
}

TEST(AnswerGenerateTest, WithoutATokenizerThereIsNoTextToRead) {
  TestServer server({.reasoning_parser = "qwen3", .tokenizer = false});
  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(3);
  request.mutable_stop()->set_max_tokens(2);
  EXPECT_TRUE(Stream(server.inference(), request).status.ok());
  request.mutable_reasoning()->set_split(true);
  const StreamedOutput out = Stream(server.inference(), request);
  EXPECT_EQ(out.status.error_code(), Code::FAILED_PRECONDITION);
  EXPECT_EQ(Reason(out.status), "NO_TOKENIZER");
}

TEST(AnswerGenerateTest, BadToolsAreNamed) {
  TestServer server(Writes("x"));
  const auto refused = [&server](const v1::GenerateRequest& request) {
    const StreamedOutput out = Stream(server.inference(), request);
    EXPECT_EQ(out.status.error_code(), Code::INVALID_ARGUMENT);
    return ViolatedField(out.status);
  };
  EXPECT_EQ(refused(Choose(Chat("hi"), v1::ToolChoice::MODE_AUTO)), "chat.tool_choice");
  EXPECT_EQ(refused(Choose(Chat("hi", {kTool}), v1::ToolChoice::MODE_UNSPECIFIED)),
            "chat.tool_choice.mode");
  EXPECT_EQ(refused(Chat("hi", {kTool, kTool})), "chat.tools[1]");
  EXPECT_EQ(refused(Choose(Chat("hi", {kTool, "{}"}), v1::ToolChoice::MODE_AUTO)), "chat.tools[1]");
  EXPECT_TRUE(Stream(server.inference(), Chat("hi", {kTool, "{}"})).status.ok());
}

}  // namespace
}  // namespace quire
