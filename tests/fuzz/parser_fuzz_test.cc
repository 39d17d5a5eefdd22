// Every fuzz target on a few thousand seeded mutations of real inputs, in every build.
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "engine/base/json.h"
#include "gtest/gtest.h"
#include "tests/fuzz/json_mutator.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/targets/parser_targets.h"

namespace quire {
namespace {

using Target = void (*)(std::string_view);

std::string ReadData(const std::string& name) {
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/testdata/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

// A tokenizer file with all bytes and a few merges: small enough to load thousands of times.
std::string SmallTokenizerFile() {
  nlohmann::json root =
      ReadJsonFile(QUIRE_SOURCE_DIR "/tests/testdata/tokenizers/llama3.json").value();
  nlohmann::json& model = root["model"];
  model["merges"].get_ref<nlohmann::json::array_t&>().resize(20);
  nlohmann::json kept = nlohmann::json::object();
  for (const auto& [token, id] : model["vocab"].items()) {
    if (id.get<int>() < 280) kept[token] = id;
  }
  model["vocab"] = kept;
  return root.dump();
}

void RunMutations(Target target, Mutator mutator, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    const std::string input = mutator.Next();
    target(input);
  }
}

TEST(ParserFuzzTest, Json) {
  RunMutations(
      FuzzJson,
      Mutator({R"({"a":[1,-2.5e3,"\u00e9\\",true],"b":{"c":null,"d":""},"e":[[],{}]})",
               "[[[[[[[[]]]]]]]]", "\"text\"", "18446744073709551615"},
              {"{", "}", "[", "]", "\"a\":", ",", "\\u0061", "1e5", "null", "\xC3\xA9", "-0"}, 1),
      30000);
}

TEST(ParserFuzzTest, TokenizerFileText) {
  RunMutations(FuzzTokenizerFile,
               Mutator({SmallTokenizerFile()},
                       {"null", "true", "\"\"", "[]", "{}", "-1", "1e9", "\"\\u0120\""}, 2),
               1000);
}

// Valid JSON with some values exchanged: passes the reader and reaches the checks after it.
TEST(ParserFuzzTest, TokenizerFileValues) {
  const nlohmann::json original = nlohmann::json::parse(SmallTokenizerFile());
  const nlohmann::json leaves = original.flatten();
  std::vector<std::string> paths;
  for (const auto& [path, value] : leaves.items()) {
    // Most leaves belong to the vocabulary: a few of its entries suffice.
    const bool many = path.starts_with("/model/vocab") || path.starts_with("/model/merges");
    if (!many || paths.size() % 7 == 0) paths.push_back(path);
  }
  const std::vector<nlohmann::json> values = {nullptr,
                                              true,
                                              false,
                                              0,
                                              1,
                                              255,
                                              400,
                                              -1,
                                              1e300,
                                              "",
                                              "a",
                                              "ByteLevel",
                                              "Split",
                                              "NFC",
                                              "Isolated",
                                              "\\p{L}+|\\s",
                                              "(a+)+b",
                                              "Removed",
                                              "a b",
                                              "\u0120a",
                                              "<|eot_id|>",
                                              "A",
                                              nlohmann::json::array(),
                                              nlohmann::json::object(),
                                              {{"type", "NFC"}},
                                              {{"type", "Digits"}, {"individual_digits", true}}};
  std::mt19937 random(5);
  for (int i = 0; i < 1500; ++i) {
    nlohmann::json root = original;
    for (unsigned edits = 1 + random() % 2; edits > 0; --edits) {
      nlohmann::json::json_pointer at(paths[random() % paths.size()]);
      for (unsigned up = random() % 3; up > 0 && !at.empty(); --up) at = at.parent_pointer();
      if (root.contains(at)) root[at] = values[random() % values.size()];
    }
    FuzzTokenizerFile(root.dump());
  }
}

TEST(ParserFuzzTest, Encode) {
  RunMutations(
      FuzzEncode,
      Mutator(
          {"Hello, world! It's 2026.\n\n\tTabs and  spaces \r\n",
           "<|im_start|>user\nna\xC3\xAFve \xE4\xB8\x96\xE7\x95\x8C<|im_end|>",
           "'Ll'\xC5\xBF 1234 \xCC\x81\xCC\xA7", std::string(200, 'a'), std::string(100, ' ')},
          {"'s", "'LL", "\n", " ", "\xE2\x80\x83", "\xF0\x9F\x98\x80", "\xCC\x88", "123",
           "<|im_end|>", "<mask>", "[END]", "\xE1\x85\xA1", "\xEA\xB0\x80", std::string("\0", 1)},
          3),
      6000);
}

TEST(ParserFuzzTest, ChatTemplate) {
  std::vector<std::string> seeds;
  for (const char* name : {"chatml", "llama31", "mistral", "qwen3", "macros", "deepseek", "clerk",
                           "seed_oss", "command_r"}) {
    seeds.push_back(ReadData("chat_templates/families/" + std::string(name) + ".jinja"));
  }
  const auto snippets =
      ReadJsonFile(QUIRE_SOURCE_DIR "/tests/testdata/chat_templates/snippets.json").value();
  for (const auto& expression : snippets["expressions"]) {
    seeds.push_back("{{ [" + expression.get<std::string>() + "] }}");
  }
  for (const auto& statement : snippets["statements"])
    seeds.push_back(statement.get<std::string>());
  seeds.push_back(
      "{% set ns = namespace(x=['a'], l=1) %}{% for x in messages if ns.x %}"
      "{% set ns.x = [ns.x, ns.x] %}{% set ns.l = [ns.l].index %}{{ ns.x in [ns.x] }}"
      "{{ loop.changed(ns.x) }}{{ loop.nextitem }}{% endfor %}{{ ns }}"
      "{% macro f() %}{% set ns.l = varargs %}{% endmacro %}{{ f(ns.l) }}");
  RunMutations(FuzzChatTemplate,
               Mutator(seeds,
                       {"{{",
                        "}}",
                        "{%",
                        "%}",
                        "-%}",
                        "{#",
                        "#}",
                        "|",
                        "(",
                        ")",
                        "[",
                        "]",
                        "loop.index0",
                        "messages",
                        " if ",
                        " else ",
                        "{% endfor %}",
                        "{% for x in messages %}",
                        "{% set x = 1 %}",
                        "not ",
                        "**",
                        "'",
                        "\"",
                        ".",
                        "~",
                        "range(9)",
                        "|list",
                        "|tojson",
                        "namespace()",
                        "namespace(x=messages)",
                        "{% set ns.x = [ns.x, ns.x] %}",
                        "{% for i in range(50) %}",
                        "loop.changed(",
                        "(**{'': 1})",
                        "|groupby('a', default=x)",
                        "|round(-400)",
                        "\u00a0",
                        "\u00e9",
                        "0x10",
                        " if loop.last ",
                        "9223372036854775807",
                        "-1"},
                       4),
               20000);
}

TEST(ParserFuzzTest, ChatInput) {
  using Json = nlohmann::json;
  const Json call = {{"type", "function"},
                     {"function", {{"name", "add"}, {"arguments", {{"a", 1}, {"b", "x"}}}}}};
  const std::vector<Json> seeds = {
      {{{"role", "system"}, {"content", "Be \xC3\xA9xact."}},
       {{"role", "user"}, {"content", "hi"}}},
      {{{"role", "user"}, {"content", Json::array({{{"type", "text"}, {"text", "1 < 2"}}})}},
       {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}},
       {{"role", "tool"}, {"tool_call_id", "c1"}, {"name", "add"}, {"content", "3"}},
       {{"role", "assistant"}, {"content", "<think>so</think>3"}, {"reasoning_content", "so"}}}};
  JsonMutator values(seeds, {"user", "assistant", "tool", "system", call, "{{ 1 }}", "</think>"},
                     6);
  for (int i = 0; i < 2500; ++i) FuzzChatInput(values.Next().dump());
}

}  // namespace
}  // namespace quire
