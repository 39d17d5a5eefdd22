// The fuzz targets of the grammar compiler on seeded mutations of real grammars, in every build.
#include "gtest/gtest.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/targets/parser_targets.h"

namespace quire {
namespace {

void RunMutations(void (*target)(std::string_view), Mutator mutator, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    const std::string input = mutator.Next();
    target(input);
  }
}

TEST(GrammarFuzzTest, Regex) {
  RunMutations(FuzzRegex,
               Mutator({R"(^\d{4}-(0[1-9]|1[0-2])$)", R"((?:a|bc)*[^x-z\]]+?)", "(a{2,3}|b?){0,40}",
                        R"(\u00e9\x41\u{1F600}[\w\s-])", "((a)(b(c)))|.*"},
                       {"(", ")", "[",   "]",      "{", "}",  "|",   "*",   "+",        "?", "\\",
                        "^", "$", "{3}", "{1,99}", "a", "[^", "(?:", "\\d", "\xC3\xA9", "."},
                       21),
               20000);
}

TEST(GrammarFuzzTest, Gbnf) {
  RunMutations(FuzzGbnf,
               Mutator({"root ::= item (\",\" item)*\nitem ::= [a-z]+ | \"(\" root \")\" # c\n",
                        "root ::= a b?\na ::= \"x\" a | \"y\"\nb ::= [^\\n\\x41]{2,5}\n",
                        "root ::= ws \"{\" ws root? \"}\"\nws ::= ([ \\t\\n] ws)?"},
                       {"root", "item", "::=", "\n", "\"", "(", ")", "[", "]", "|", "*", "{2}",
                        "a ::= root", "\"\"", "?", "ws", "\\", "#"},
                       22),
               20000);
}

TEST(GrammarFuzzTest, Lark) {
  RunMutations(FuzzLark,
               Mutator({"start: [start \",\"] item -> a\nitem: \"x\"i~1..3 | /[a-z]+/ // c\n",
                        "?start: sum\n!sum.2: sum \"+\" NUM\n    | NUM\n%import common.INT -> NUM\n"
                        "%import common (WS, CNAME)\n%ignore WS\n",
                        "start: (A | \"b\"..\"d\")*\nA: \"\\u00e9\" B?\nB: /[^\\/]/s\n"},
                       {"start", "item", ":", "\n", "\"", "(", ")",       "[",
                        "]",     "|",    "*", "~2", "..", "A", "%ignore", "%import common.",
                        "->",    "/",    "?", "\\", "#",  "i", "{",       "<"},
                       24),
               20000);
}

TEST(GrammarFuzzTest, JsonSchema) {
  RunMutations(
      FuzzJsonSchema,
      Mutator(
          {R"({"type":"object","properties":{"a":{"type":"integer","minimum":-3},"b":{"enum":
                  ["x",1,null]}},"required":["a"],"additionalProperties":{"type":"string"}})",
           R"({"$defs":{"n":{"anyOf":[{"type":"null"},{"type":"array","items":
                  {"$ref":"#/$defs/n"},"maxItems":3}]}},"$ref":"#/$defs/n"})",
           R"({"allOf":[{"type":"string","maxLength":50},{"pattern":"^a+[b-d]?$"}]})",
           R"({"oneOf":[{"const":1},{"type":"number","exclusiveMaximum":0},{"format":"uuid"}]})",
           R"({"type":["array","null"],"prefixItems":[true,{"type":"boolean"}],"items":false})"},
          {"{",
           "}",
           "[",
           "]",
           ":",
           ",",
           "true",
           "false",
           "null",
           "-1",
           "1e9",
           "\"type\":",
           "\"object\"",
           "\"$ref\":\"#\"",
           "\"not\":",
           "\"minItems\":3",
           "{\"$ref\":\"#/\"}",
           "\"anyOf\":[",
           "\"nullable\":true",
           "\"maxLength\":2"},
          23),
      20000);
}

}  // namespace
}  // namespace quire
