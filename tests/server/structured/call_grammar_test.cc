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
  EXPECT_EQ(ReadTool(R"({"name": "stop", "parameters": null})").parameters,
            ReadTool(kBare).parameters);
  for (const char* nameless : {"{}", "[]", "nothing", R"({"function": {"name": 3}})"}) {
    EXPECT_EQ(ReadTool(nameless).name, "");
  }
}

// Arguments that are no object make no call: the answer would be text where a call is required.
TEST(CallGrammarTest, ArgumentsAreAnObjectWhateverTheSchemaLeavesOpen) {
  for (const char* parameters :
       {"{}", "true", R"({"description": "none"})", R"({"type": ["null", "object"]})",
        R"({"type": "object", "nullable": true})", R"({"anyOf": [{"type": "object"}, {}]})",
        R"({"anyOf": [{"type": "object", "nullable": true}, {"nullable": true}]})",
        R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": ["object", "string"]}}})"}) {
    const CallableTool tool =
        ReadTool(R"({"name": "f", "parameters": )" + std::string(parameters) + "}");
    EXPECT_TRUE(tool.TakesObject()) << parameters;
    const auto guide = Compile(CallGrammar(*FindCallFormat("hermes"), {tool}, false));
    EXPECT_TRUE(Accepts(*guide, Tagged(R"({"name": "f", "arguments": {}})"))) << parameters;
    for (const std::string other : {"null", "1", "\"x\"", "[]", "true"}) {
      EXPECT_FALSE(Accepts(*guide, Tagged(R"({"name": "f", "arguments": )" + other + "}")))
          << parameters << other;
    }
  }
  for (const char* other : {R"({"type": "string"})", R"({"type": ["null"]})", "false", "[]", "3"}) {
    EXPECT_FALSE(
        ReadTool(R"({"name": "f", "parameters": )" + std::string(other) + "}").TakesObject())
        << other;
  }
}

}  // namespace
}  // namespace quire
