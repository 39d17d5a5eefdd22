// One call as an object, and where JSON values end.
#include "server/answer_parts/json_call.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "server/answer_parts/answer_writer.h"
#include "server/answer_parts/json_extent.h"

namespace quire {
namespace {

TEST(JsonExtentTest, AValueEndsWithItsLastBracketOrQuote) {
  for (const std::string_view value : {"{}", "[]", "\"\"", "{\"a\": [1, {\"b\": \"}\"}]}",
                                       "[\"]\\\"]\", []]", "\"\\\\\"", "\"\\\\\\\"\""}) {
    JsonExtent extent;
    extent.Begin(value[0]);
    for (size_t i = 1; i < value.size(); ++i) {
      EXPECT_EQ(extent.Push(value[i]), i + 1 == value.size()) << value << " at " << i;
    }
  }
}

TEST(JsonCallTest, ArgumentsComeAsTheyAreWritten) {
  const ToolNames tools = {"f"};
  JsonCall call(&tools, true);
  AnswerWriter out(1);
  std::string arguments;
  for (const char byte : std::string("{\"name\": \"f\", \"arguments\": {\"a")) {
    EXPECT_EQ(call.Push(byte, &out), JsonCall::State::kOpen);
  }
  EXPECT_TRUE(call.begun());
  AnswerParts parts = out.Take();
  ASSERT_EQ(parts.calls.size(), 1u);
  EXPECT_EQ(parts.calls[0].arguments, "{\"a");
  for (const char byte : std::string("\": 1} ")) call.Push(byte, &out);
  EXPECT_EQ(out.ended_calls(), 0u);
  EXPECT_EQ(call.Push('}', &out), JsonCall::State::kDone);
  parts = out.Take();
  ASSERT_EQ(parts.calls.size(), 1u);
  EXPECT_EQ(parts.calls[0].id, "");
  EXPECT_EQ(parts.calls[0].arguments, "\": 1}");
  EXPECT_EQ(out.ended_calls(), 1u);
}

// The byte that shows that a text is no call is the one that says so.
TEST(JsonCallTest, TheFirstWrongByteBreaksIt) {
  const ToolNames tools = {"f"};
  for (const std::string_view text :
       {"x", "{x", "{\"a\"x", "{\"a\": x", "{\"a\": 1 x", "{\"a\": 1,}", "{\"name\": 1",
        "{\"name\": \"g\"", "{\"name\": \"f\", \"arguments\": [", "{\"arguments\": {}}",
        "{\"name\": \"f\"}", "{\"name\": \"f\", \"arguments\": \"x\""}) {
    JsonCall call(&tools, true);
    AnswerWriter out(1);
    for (size_t i = 0; i < text.size(); ++i) {
      EXPECT_EQ(call.Push(text[i], &out) == JsonCall::State::kBroken, i + 1 == text.size())
          << text << " at " << i;
    }
    EXPECT_TRUE(out.Take().calls.empty());
  }
}

}  // namespace
}  // namespace quire
