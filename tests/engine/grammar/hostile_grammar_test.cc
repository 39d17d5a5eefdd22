// Grammars that try to cost too much are refused with INVALID_ARGUMENT, or cost little.
// Covers engine/grammar/rules/guide_limits.cc
#include "absl/strings/str_cat.h"
#include "tests/engine/grammar/guide_driver.h"

namespace quire {
namespace {

using testing::HasSubstr;

GrammarSource Regex(const std::string& text) { return {GrammarKind::kRegex, text}; }
GrammarSource Gbnf(const std::string& text) { return {GrammarKind::kGbnf, text}; }
GrammarSource Schema(const std::string& text) { return {GrammarKind::kJsonSchema, text}; }

std::string Repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(HostileGrammarTest, TooLarge) {
  EXPECT_THAT(CompileError(Regex(std::string(2 << 20, 'a'))), HasSubstr("bytes, the limit is"));
  EXPECT_THAT(CompileError(Regex(std::string(500000, 'a'))), HasSubstr("needs more than"));
  EXPECT_THAT(CompileError(Regex("(ab?){100000}")), HasSubstr("grammar: "));
  EXPECT_THAT(CompileError(Regex("((((a?){1000}){1000}){1000}){1000}")), HasSubstr("grammar: "));
  EXPECT_THAT(CompileError(Regex("((((){1000}){1000}){1000}){1000}")), HasSubstr("grammar: "));
  EXPECT_THAT(CompileError(Regex("(a|b)*a(a|b){20}c|(x|y)*x(x|y){25}")), HasSubstr("grammar: "));
  EXPECT_THAT(CompileError({GrammarKind::kChoice, "", {}}), HasSubstr("there are no choices"));
  EXPECT_THAT(CompileError({GrammarKind::kChoice, "", {"a", ""}}), HasSubstr("choice[1]"));
}

TEST(HostileGrammarTest, ManyAlternatives) {
  GrammarSource million{GrammarKind::kChoice};
  for (int i = 0; i < 1000000; ++i) million.choices.push_back(absl::StrCat("choice ", i));
  EXPECT_THAT(CompileError(million), HasSubstr("bytes, the limit is"));
  EXPECT_THAT(CompileError(million, {.max_source_bytes = 1 << 30}), HasSubstr("grammar: "));
  std::string gbnf = "root ::= \"a\"";
  for (int i = 0; i < 100000; ++i) gbnf += absl::StrCat("|\"", i, "\"");
  const auto guide = CompileGuide(Gbnf(gbnf), ByteVocabulary());
  EXPECT_TRUE(!guide.ok() || Accepts(**guide, "99999"));
}

TEST(HostileGrammarTest, TooDeep) {
  EXPECT_THAT(CompileError(Regex(Repeat("(", 100000))), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(CompileError(Gbnf("root ::= " + Repeat("(", 100000))), HasSubstr("nested deeper"));
  EXPECT_THAT(CompileError(Gbnf("root ::= \"a\"" + Repeat("*", 100000))), HasSubstr("quantifiers"));
  EXPECT_THAT(CompileError(Schema(Repeat("[", 100000))), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(CompileError(Schema(Repeat(R"({"items":)", 1000))), HasSubstr("nested deeper"));
}

TEST(HostileGrammarTest, Circles) {
  EXPECT_THAT(CompileError(Schema(R"({"$ref": "#"})")), HasSubstr("can lead to itself"));
  EXPECT_THAT(CompileError(Schema(R"({"allOf": [{"$ref": "#"}]})")), HasSubstr("schema: "));
  EXPECT_THAT(CompileError(Schema(R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})")),
              HasSubstr("can lead to itself"));
  EXPECT_THAT(CompileError(Schema(R"({"title": "x", "$ref": "#/$defs/a", "$defs":
      {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})")),
              HasSubstr("can lead to itself"));
  std::string chain = "root ::= r0\n";  // ten thousand rules, each of which begins with the next
  for (int i = 0; i < 10000; ++i) chain += absl::StrCat("r", i, " ::= r", i + 1, " \"a\"\n");
  EXPECT_THAT(CompileError(Gbnf(chain + "r10000 ::= r0")), HasSubstr("can lead to itself"));
}

// Each combination doubles: 2^40 schemas.
TEST(HostileGrammarTest, DoublingReferences) {
  std::string schema = R"({"allOf": [{"$ref": "#/$defs/d0"}, {"$ref": "#/$defs/d0"}], "$defs": {)";
  for (int i = 0; i < 40; ++i) {
    const std::string next = absl::StrCat(R"({"$ref": "#/$defs/d)", i + 1, "\"}");
    absl::StrAppend(&schema, "\"d", i, R"(": {"anyOf": [{"minLength": )", i, R"(, "allOf": [)",
                    next, "]}, {\"maxLength\": ", 50 - i, ", \"allOf\": [", next, "]}]},");
  }
  CompileError(Schema(schema + R"("d40": {"type": "string"}}})"));
}

// Ambiguous grammars compile, and their places stay few: some texts are given up, none is allowed
// that cannot be finished.
TEST(HostileGrammarTest, AmbiguityIsBounded) {
  const auto vocabulary = ByteVocabulary({"aa", "aaaa", "aaaaaaaa", "aaaaaaaaaaaaaaaa"});
  std::mt19937 random(1);
  for (const GrammarSource& source :
       {Gbnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"a\""),
        Gbnf("root ::= \"a\" root \"a\" | \"a\""),
        Gbnf("root ::= x root \"y\" | z root \"w\" | \"a\"\nx ::= \"a\"\nz ::= \"a\""),
        Gbnf("root ::= (\"a\" root?)+ \"b\"?"), Regex("(a{1,50}){1,50}(a{1,40}b?){0,40}"),
        Gbnf("root ::= ws \"{\" ws root? \"}\"\nws ::= (\"\"[ \\t\\n] ws*)?{2}")}) {
    const auto guide = Compile(source, vocabulary);
    for (int64_t max_tokens : {40, 41, 100}) {
      RandomText(*guide, *vocabulary, max_tokens, &random);
    }
  }
}

}  // namespace
}  // namespace quire
