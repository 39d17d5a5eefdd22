// Grammars of calls, judged by texts that are calls and texts that are not.
#include "server/structured/call_grammar.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/grammar/guide_driver.h"

namespace quire {
namespace {

constexpr char kTree[] = R"({"type": "function", "function": {"name": "plant", "parameters": {
    "type": "object", "required": ["tree"], "additionalProperties": false,
    "properties": {"tree": {"$ref": "#/$defs/node"}},
    "$defs": {"node": {"type": "object", "additionalProperties": false, "properties": {
        "child": {"$ref": "#/$defs/node"}}}}}}})";
constexpr char kBare[] = R"({"name": "stop"})";

std::shared_ptr<const CompiledGuide> Grammar(const char* family, bool many) {
  return Compile(CallGrammar(*FindCallFormat(family), {ReadTool(kTree), ReadTool(kBare)}, many));
}

const std::string kPlant = R"({"name": "plant", "arguments": {"tree": {"child": {"child": {}}}}})";
const std::string kStop = R"({"name":"stop","arguments":{}})";

std::string Tagged(const std::string& call) { return "<tool_call>\n" + call + "\n</tool_call>"; }

TEST(CallGrammarTest, CallsStandInTheFamilysFrame) {
  const auto one = Grammar("hermes", false);
  EXPECT_TRUE(Accepts(*one, Tagged(kPlant)));
  EXPECT_TRUE(Accepts(*one, Tagged(kStop)));
  EXPECT_FALSE(Accepts(*one, Tagged(kStop) + "\n" + Tagged(kStop)));
  EXPECT_FALSE(Accepts(*one, kStop));
  EXPECT_FALSE(Accepts(*one, ""));
  const auto many = Grammar("hermes", true);
  EXPECT_TRUE(Accepts(*many, Tagged(kStop) + "\n" + Tagged(kPlant) + "\n" + Tagged(kStop)));
  EXPECT_FALSE(Accepts(*many, ""));
  EXPECT_TRUE(Accepts(*Grammar("mistral", true), "[TOOL_CALLS][" + kStop + ", " + kPlant + "]"));
  EXPECT_TRUE(Accepts(*Grammar("llama3_json", true),
                      R"({"name": "stop", "parameters": {}}; {"name": "stop", "parameters": {}})"));
  EXPECT_FALSE(Accepts(*Grammar("llama3_json", true), kStop));
}

TEST(CallGrammarTest, ArgumentsFollowTheSchemaOfTheirOwnTool) {
  const auto one = Grammar("hermes", false);
  for (const std::string call :
       {R"({"name": "other", "arguments": {}})", R"({"name": "plant", "arguments": {}})",
        R"({"name": "stop", "arguments": {"tree": {}}})", R"({"name": "stop"})",
        R"({"name": "plant", "arguments": {"tree": {"leaf": {}}}})",
        R"({"name": "plant", "arguments": {"tree": {"child": 1}}})"}) {
    EXPECT_FALSE(Accepts(*one, Tagged(call))) << call;
  }
}

TEST(CallGrammarTest, ToolsAreReadWithOrWithoutFunction) {
  EXPECT_EQ(ReadTool(kTree).name, "plant");
  EXPECT_EQ(ReadTool(kBare).name, "stop");
  EXPECT_EQ(ReadTool(kBare).parameters.dump(), R"({"type":"object","additionalProperties":false})");
  for (const char* nameless : {"{}", "[]", "nothing", R"({"function": {"name": 3}})"}) {
    EXPECT_EQ(ReadTool(nameless).name, "");
  }
}

}  // namespace
}  // namespace quire
