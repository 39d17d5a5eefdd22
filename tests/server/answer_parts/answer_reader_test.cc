// Answers as the families' models write them, from their published examples and templates, cut in
// every way.
// Covers server/answer_parts/hermes_calls.cc, server/answer_parts/llama_calls.cc,
// server/answer_parts/mistral_calls.cc.
#include "server/answer_parts/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "server/answer_parts/answer_writer.h"
#include "server/answer_parts/call_format.h"
#include "server/answer_parts/marker_scan.h"
#include "server/answer_parts/reasoning_format.h"
#include "server/answer_parts/reasoning_splitter.h"

namespace quire {
namespace {

using Calls = std::vector<std::pair<std::string, std::string>>;  // names and arguments

struct Answer {
  std::string reasoning, text;
  Calls calls;
  uint32_t whole = 0;  // calls
  bool operator==(const Answer&) const = default;
};

void PrintTo(const Answer& answer, std::ostream* out) {
  *out << "reasoning <" << answer.reasoning << "> text <" << answer.text << ">";
  for (const auto& [name, arguments] : answer.calls) *out << " " << name << " " << arguments;
  *out << ", " << answer.whole << " whole";
}

AnswerPlan PlanOf(const char* calls, const char* reasoning = nullptr,
                  ReasoningStart start = ReasoningStart::kMayBegin) {
  const ToolNames tools = {"get_weather", "get_time", "f"};
  return {.reasoning = reasoning == nullptr ? nullptr : FindReasoningFormat(reasoning),
          .start = start,
          .calls = calls == nullptr ? nullptr : FindCallFormat(calls),
          .tools = std::make_shared<const ToolNames>(tools)};
}

Answer ReadPieces(const AnswerPlan& plan, const std::vector<std::string>& pieces) {
  AnswerReader reader(plan, 7);
  Answer answer;
  std::vector<ToolCallPart> calls;
  const auto take = [&] {
    AnswerParts parts = reader.Take();
    answer.reasoning += parts.reasoning;
    answer.text += parts.text;
    for (ToolCallPart& call : parts.calls) AppendCall(std::move(call), &calls);
  };
  for (const std::string& piece : pieces) {
    reader.Push(piece);
    take();
  }
  reader.Finish("");
  take();
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].index, i);
    EXPECT_EQ(calls[i].id.size(), 9u);
    answer.calls.emplace_back(calls[i].name, calls[i].arguments);
  }
  answer.whole = reader.tally().tool_calls;
  return answer;
}

std::vector<std::string> Cut(const std::string& text, std::set<size_t> places) {
  std::vector<std::string> pieces;
  places.insert(text.size());
  size_t begin = 0;
  for (const size_t end : places) {
    pieces.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

// Reads the text whole, byte by byte, and cut at each place, with the same result.
Answer Read(const AnswerPlan& plan, const std::string& text) {
  const Answer whole = ReadPieces(plan, {text});
  std::set<size_t> everywhere;
  for (size_t i = 1; i < text.size(); ++i) {
    everywhere.insert(i);
    EXPECT_EQ(ReadPieces(plan, Cut(text, {i})), whole) << "cut at " << i;
  }
  EXPECT_EQ(ReadPieces(plan, Cut(text, everywhere)), whole);
  return whole;
}

Answer Text(const std::string& text) { return {.text = text}; }
Answer Called(Calls calls, const std::string& text = "") {
  const auto whole = static_cast<uint32_t>(calls.size());
  return {.text = text, .calls = std::move(calls), .whole = whole};
}

TEST(HermesCallsTest, CallsStandBetweenTags) {
  const AnswerPlan plan = PlanOf("hermes");
  const std::string first =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome, \\\"{IT\"}}"
      "\n</tool_call>";
  const std::pair<std::string, std::string> weather = {"get_weather",
                                                       "{\"location\": \"Rome, \\\"{IT\"}"};
  EXPECT_EQ(Read(plan, first), Called({weather}));
  EXPECT_EQ(Read(plan, first + "\n" + first), Called({weather, weather}));
  EXPECT_EQ(Read(plan, "I look.\n" + first + "\n\nDone.\n"), Called({weather}, "I look.Done.\n"));
  EXPECT_EQ(Read(plan, "<tool_call>{\"name\":\"get_time\",\"arguments\":{}}</tool_call>"),
            Called({{"get_time", "{}"}}));
  // The order of Hermes 2 Pro, arguments as a text, none at all, and members beside them.
  EXPECT_EQ(Read(plan,
                 "<tool_call>\n{\"arguments\": {\"a\": [1, {}]}, \"name\": \"f\"}\n"
                 "</tool_call>\n"),
            Called({{"f", "{\"a\": [1, {}]}"}}));
  EXPECT_EQ(Read(plan,
                 "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}"
                 "</tool_call>"),
            Called({{"f", "{\"a\": 1}"}}));
  EXPECT_EQ(Read(plan, "<tool_call>{\"id\": 3, \"name\": \"f\", \"x\": [true]}</tool_call>"),
            Called({{"f", "{}"}}));
}

TEST(HermesCallsTest, TextThatOnlyLooksLikeACallStaysText) {
  const AnswerPlan plan = PlanOf("hermes");
  for (const std::string text :
       {"", "\n", "Hello.\n\n", "a < b, <tool, <tool_call", "\n<tool_call>", "<tool_call>\n{\"na",
        "<tool_call>not JSON</tool_call>", "say \n<tool_call> {\"name\": 3}</tool_call>\n",
        "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>", "<tool_call>{\"name\": \"f\", ]}",
        "<tool_call>{\"name\": \"f\", \"name\": \"f\"}</tool_call>", "</tool_call>"}) {
    EXPECT_EQ(Read(plan, text), Text(text));
  }
  EXPECT_EQ(Read(plan, "<tool_call><tool_call>{\"name\": \"f\"}</tool_call>"),
            Called({{"f", "{}"}}, "<tool_call>"));
}

TEST(HermesCallsTest, ACallThatIsCutHasTheBeginOfItsArguments) {
  const Answer answer = Read(PlanOf("qwen"), "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a");
  EXPECT_EQ(answer.calls, (Calls{{"f", "{\"a"}}));
  EXPECT_EQ(answer.whole, 0u);
  EXPECT_EQ(answer.text, "");
  EXPECT_EQ(Read(PlanOf("hermes"), "<tool_call>{\"name\": \"f\", \"arguments\": {}}\nso </tool"),
            Called({{"f", "{}"}}, "\nso </tool"));
}

TEST(LlamaCallsTest, CallsAreTheWholeAnswerOrFollowTheTag) {
  const AnswerPlan plan = PlanOf("llama3_json");
  const std::string call = "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}";
  const std::pair<std::string, std::string> weather = {"get_weather", "{\"city\": \"Rome\"}"};
  EXPECT_EQ(Read(plan, call), Called({weather}));
  EXPECT_EQ(Read(plan, "\n" + call + "\n"), Called({weather}));
  EXPECT_EQ(Read(plan, call + "; " + call), Called({weather, weather}));
  EXPECT_EQ(Read(plan, "<|python_tag|>" + call + ";" + call), Called({weather, weather}));
  EXPECT_EQ(Read(plan, "Let me look.\n<|python_tag|>" + call), Called({weather}, "Let me look."));
  EXPECT_EQ(Read(plan, "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}"),
            Called({{"f", "{}"}}));
  EXPECT_EQ(Read(plan, call + "\nThat is all."), Called({weather}, "\nThat is all."));
}

TEST(LlamaCallsTest, TextThatOnlyLooksLikeACallStaysText) {
  const AnswerPlan plan = PlanOf("llama3_json");
  for (const std::string text :
       {"", " ", "{", "{\"name\": \"John\", \"parameters\": {}}", "{\"name\": \"f\"}",
        "{\"a\": 1}\n", "The call {\"name\": \"f\", \"parameters\": {}} is text.",
        "<|python_tag|>brave_search.call(query=\"x\")", "a\n\n<|python_tag", "{;", ";{}",
        "x\n<|python_tag|>\n\ny\n"}) {
    EXPECT_EQ(Read(plan, text), Text(text));
  }
}

TEST(MistralCallsTest, CallsAreAListOrFollowTheirNames) {
  const AnswerPlan plan = PlanOf("mistral");
  EXPECT_EQ(
      Read(plan,
           "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"location\": "
           "\"Paris, France\", \"format\": \"celsius\"}, \"id\": \"9Ae3bDc2F\"}]"),
      Called({{"get_weather", "{\"location\": \"Paris, France\", \"format\": \"celsius\"}"}}));
  EXPECT_EQ(Read(plan,
                 "Sure.[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}} , {\"name\": "
                 "\"get_time\", \"arguments\": {\"a\":\"]\"}}]\n"),
            Called({{"f", "{}"}, {"get_time", "{\"a\":\"]\"}"}}, "Sure."));
  EXPECT_EQ(Read(plan,
                 "[TOOL_CALLS]get_time[ARGS]{\"a\": {}}[TOOL_CALLS]f[CALL_ID]abcdefghi"
                 "[ARGS]{}"),
            Called({{"get_time", "{\"a\": {}}"}, {"f", "{}"}}));
  EXPECT_EQ(Read(plan, "[TOOL_CALLS]f{\"x\": 1}"), Called({{"f", "{\"x\": 1}"}}));
}

TEST(MistralCallsTest, TextThatOnlyLooksLikeACallStaysText) {
  const AnswerPlan plan = PlanOf("mistral");
  for (const std::string text :
       {"", "[TOOL", "[TOOL_CALLS]", "\n[TOOL_CALLS] ", "[TOOL_CALLS][]", "[TOOL_CALLS]who[ARGS]{}",
        "[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS]f[ARG]{}", "[TOOL_CALLS]f()", "[TOOL_CALLS]get{}",
        "[TOOL_CALLS][{\"name\": \"who\", \"arguments\": {}}]", "[[x]"}) {
    EXPECT_EQ(Read(plan, text), Text(text));
  }
  EXPECT_EQ(Read(plan, "[TOOL_CALLS][{\"name\": \"f\"} x]"), Called({{"f", "{}"}}, " x]"));
}

// Fragments of which a model's mistakes are made.
// As transformers renders them: make_call_goldens.py.
TEST(CallParsersTest, CallsOfTemplatesComeBack) {
  const auto cases =
      ReadJsonFile(QUIRE_SOURCE_DIR "/tests/testdata/chat_templates/calls.json").value();
  EXPECT_EQ(cases.size(), 125u);
  for (const auto& test : cases) {
    const std::string parser = test["parser"], text = test["answer"];
    const Answer answer = Read(PlanOf(parser.c_str()), text);
    EXPECT_EQ(answer.text, "") << text;
    EXPECT_EQ(answer.whole, test["calls"].size()) << text;
    ASSERT_EQ(answer.calls.size(), test["calls"].size()) << text;
    for (size_t i = 0; i < answer.calls.size(); ++i) {
      const auto& [name, arguments] = answer.calls[i];
      EXPECT_EQ(name, test["calls"][i][0]) << text;
      EXPECT_EQ(ParseJson(arguments, "arguments").value(), test["calls"][i][1]) << text;
    }
  }
}

TEST(CallParsersTest, RandomTextLosesNoByte) {
  const std::vector<std::string> fragments = {"<tool_call>",
                                              "</tool_call>",
                                              "<|python_tag|>",
                                              "[TOOL_CALLS]",
                                              "[ARGS]",
                                              "[CALL_ID]",
                                              "f",
                                              "get_",
                                              "who",
                                              "{",
                                              "}",
                                              "[",
                                              "]",
                                              "\"",
                                              "\\",
                                              ",",
                                              ":",
                                              ";",
                                              " ",
                                              "\n",
                                              "\"name\"",
                                              "\"arguments\"",
                                              "\"parameters\"",
                                              "{\"name\": \"",
                                              "\"f\"",
                                              "<",
                                              "\xc3\xa9",
                                              "1"};
  std::mt19937 random(18);
  for (const char* format : {"hermes", "llama3_json", "mistral"}) {
    const AnswerPlan plan = PlanOf(format);
    int plain = 0;
    for (int round = 0; round < 4000; ++round) {
      std::string text;
      for (size_t n = random() % 24; n > 0; --n) text += fragments[random() % fragments.size()];
      std::set<size_t> places;
      for (size_t n = random() % 6; n > 0; --n) places.insert(random() % (text.size() + 1));
      const Answer answer = ReadPieces(plan, {text});
      ASSERT_EQ(ReadPieces(plan, Cut(text, places)), answer) << format << ": " << text;
      if (!answer.calls.empty()) continue;
      ASSERT_EQ(answer.text, text) << format;
      ++plain;
    }
    EXPECT_GT(plain, 3000);
  }
}

TEST(ReasoningTest, MarkersAndTheLineBreaksBesideThemAreTakenOff) {
  const AnswerPlan plan = PlanOf(nullptr, "qwen3");
  EXPECT_EQ(Read(plan, "<think>\nTwo and two.\n\nFour?\n</think>\n\nIt is 4.\n"),
            (Answer{.reasoning = "Two and two.\n\nFour?", .text = "It is 4.\n"}));
  EXPECT_EQ(Read(plan, "\n<think>\n\n</think>\n\nHello"), (Answer{.text = "Hello"}));
  EXPECT_EQ(Read(plan, "<think>a < b </thin\n\n"), (Answer{.reasoning = "a < b </thin\n\n"}));
  for (const std::string text : {"", "\n", "No <think>\nx</think>", "<thin", "</think>y"}) {
    EXPECT_EQ(Read(plan, text), Text(text));
  }
  EXPECT_EQ(Read(PlanOf(nullptr, "mistral"), "[THINK]x[1][/THINK]y"),
            (Answer{.reasoning = "x[1]", .text = "y"}));
  EXPECT_EQ(Read(PlanOf(nullptr, "seed_oss"), "<seed:think>x</seed:think>y"),
            (Answer{.reasoning = "x", .text = "y"}));
}

TEST(ReasoningTest, ThePromptMayHaveOpenedOrEndedIt) {
  const AnswerPlan begun = PlanOf(nullptr, "deepseek_r1", ReasoningStart::kBegun);
  EXPECT_EQ(Read(begun, "Hm.\n</think>\n\nYes."), (Answer{.reasoning = "Hm.", .text = "Yes."}));
  EXPECT_EQ(Read(begun, "<think>\nHm.</think>Yes."), (Answer{.reasoning = "Hm.", .text = "Yes."}));
  EXPECT_EQ(Read(begun, "Hm <think>"), (Answer{.reasoning = "Hm <think>"}));
  const AnswerPlan over = PlanOf(nullptr, "deepseek_r1", ReasoningStart::kOver);
  EXPECT_EQ(Read(over, "<think>x</think>"), Text("<think>x</think>"));
  const ReasoningFormat& format = *FindReasoningFormat("deepseek_r1");
  EXPECT_EQ(StartAfter(format, "<|Assistant|><think>\n"), ReasoningStart::kBegun);
  EXPECT_EQ(StartAfter(format, "assistant\n<think>\n\n</think>\n\n"), ReasoningStart::kOver);
  EXPECT_EQ(StartAfter(format, "<think> is a tag"), ReasoningStart::kMayBegin);
  EXPECT_EQ(StartAfter(format, ""), ReasoningStart::kMayBegin);
}

TEST(ReasoningTest, CallsFollowReasoningAndAreNoneWithin) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  EXPECT_EQ(Read(PlanOf("hermes", "qwen3"), "<think>\n" + call + "?\n</think>\n\n" + call),
            (Answer{.reasoning = call + "?", .calls = {{"f", "{}"}}, .whole = 1}));
}

TEST(ReasoningTest, TokensAreCountedUpToTheEndMarker) {
  AnswerReader reader(PlanOf(nullptr, "qwen3"), 1);
  for (const char* token : {"<think>", "\n", "Hm", "", ".", "</think>", "\n\n", "Yes"}) {
    reader.Push(token);
  }
  reader.Finish("");
  EXPECT_EQ(reader.tally().reasoning_tokens, 6);
  AnswerReader none(PlanOf(nullptr, "qwen3"), 1);
  for (const char* token : {"\n", "Yes"}) none.Push(token);
  none.Finish("");
  EXPECT_EQ(none.tally().reasoning_tokens, 0);
}

TEST(FormatsTest, NamesAndTemplatesTellTheFamily) {
  const auto in = [](const std::string& text) {
    return [text](std::string_view sign) { return text.find(sign) != std::string::npos; };
  };
  EXPECT_STREQ(DetectCallFormat(in("<function-name> </tool_call>"))->name, "hermes");
  EXPECT_STREQ(DetectCallFormat(in("[TOOL_CALLS]"))->name, "mistral");
  EXPECT_STREQ(DetectCallFormat(in("dictionary of argument name and its value"))->name,
               "llama3_json");
  EXPECT_EQ(DetectCallFormat(in("<tool_call>{function-name}</tool_call>")), nullptr);
  EXPECT_EQ(FindCallFormat("qwen"), FindCallFormat("hermes"));
  EXPECT_EQ(FindCallFormat("none"), nullptr);
  EXPECT_THAT(CallFormatNames(), ::testing::HasSubstr("llama3_json"));
  EXPECT_STREQ(DetectReasoningFormat(in("split('</think>')"))->name, "deepseek_r1");
  EXPECT_EQ(DetectReasoningFormat(in("think")), nullptr);
  EXPECT_EQ(FindReasoningFormat("qwen3"), FindReasoningFormat("deepseek_r1"));
  EXPECT_EQ(FindReasoningFormat("auto"), nullptr);
  EXPECT_THAT(ReasoningFormatNames(), ::testing::HasSubstr("seed_oss"));
}

}  // namespace
}  // namespace quire
