// Grammars in Lark's notation against the package lark, and what is refused.
// Covers engine/grammar/readers/lark_syntax.cc, engine/grammar/readers/lark_left.cc,
// engine/grammar/readers/lark_terminals.cc
#include "engine/grammar/readers/lark_reader.h"

#include "absl/strings/str_cat.h"
#include "tests/engine/grammar/text_cases.h"

namespace quire {
namespace {

using testing::HasSubstr;

GrammarSource Lark(const std::string& text) { return {GrammarKind::kLark, text}; }
std::string LarkError(const std::string& text) { return CompileError(Lark(text)); }

TEST(LarkReaderTest, AgreesWithLark) {
  const auto cases =
      ReadJsonFile(QUIRE_SOURCE_DIR "/tests/testdata/grammar/lark_cases.json").value();
  EXPECT_GT(cases.size(), 200);
  EXPECT_EQ(Differences(cases, ByteVocabulary()), 0);
}

TEST(LarkReaderTest, WalksThroughMasksAreDerived) {
  // Written by the masks of one vocabulary, read with another one.
  const auto merged = ByteVocabulary({"1 +", "+ 2", " (", "))", "a1", "12", "  "});
  const std::string calculator =
      "start: start /[+*]/ value | value\nvalue: /[0-9]+/ | /[a-z]+/ | \"(\" start \")\"\n"
      "%import common.WS\n%ignore WS";
  const auto guide = Compile(Lark(calculator), merged);
  const auto bytes = Compile(Lark(calculator));
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const std::string text = RandomText(*guide, *merged, 2 + i % 40, &random);
    EXPECT_TRUE(Accepts(*bytes, text)) << text;
  }
}

TEST(LarkReaderTest, ATextIsCutIntoTokensInAnyWay) {
  // A lexer that takes the longest word has no second one here.
  EXPECT_TRUE(Accepts(*Compile(Lark("start: WORD WORD\nWORD: /[a-z]+/")), "ab"));
  // The word is a keyword and a name.
  const auto guide =
      Compile(Lark("start: \"if\" NAME | NAME \"!\"\nNAME: /[a-z]+/\n%ignore \" \""));
  EXPECT_TRUE(Accepts(*guide, "if a"));
  EXPECT_TRUE(Accepts(*guide, "ifa"));
  EXPECT_TRUE(Accepts(*guide, "if !"));
  EXPECT_FALSE(Accepts(*guide, "if"));
}

TEST(LarkReaderTest, IgnoredTextsStandBesideTokensOnly) {
  const auto guide =
      Compile(Lark("start: NUMBER \"kg\"\nNUMBER: DIGIT+ \".\" DIGIT\n"
                   "DIGIT: \"0\"..\"9\"\n%ignore /[ ]+/\n%ignore \"_\""));
  for (const char* text : {"1.5kg", "  1.5 kg", "1.5kg _ ", "_1.5__kg"}) {
    EXPECT_TRUE(Accepts(*guide, text)) << text;
  }
  for (const char* text : {"1 .5kg", "1.5k g", "1._5kg", "1.5"}) {
    EXPECT_FALSE(Accepts(*guide, text)) << text;
  }
}

TEST(LarkReaderTest, LeftRecursionBecomesRepetition) {
  const auto sum =
      Compile(Lark("start: (start \"+\" | start \"-\") \"1\" | \"1\" | [start \",\"] \"2\""));
  for (const char* text : {"1", "2", "1+1", "2-1+1", "1,2", "1-1,2+1", "2,2,2"}) {
    EXPECT_TRUE(Accepts(*sum, text)) << text;
  }
  for (const char* text : {"", "1+", "1+2", ",2", "1,1", "11"}) {
    EXPECT_FALSE(Accepts(*sum, text)) << text;
  }
  EXPECT_TRUE(Accepts(*Compile(Lark("start: start | \"a\"")), "a"));
  EXPECT_THAT(LarkError("start: start \"a\""), HasSubstr("no text can be finished"));
  EXPECT_THAT(LarkError("\nstart: other \"a\" | \"b\"\nother: start \"c\" | \"d\""),
              HasSubstr("rule start of line 2 can lead to itself before any text"));
  EXPECT_THAT(LarkError("start: start* \"a\""), HasSubstr("rule start of line 1 can lead"));
}

TEST(LarkReaderTest, RefusesByLineAndColumn) {
  EXPECT_THAT(LarkError("a: \"b\""), HasSubstr("lark: there is no rule start"));
  EXPECT_THAT(LarkError("start: a\n"), HasSubstr("lark: line 1, column 8: a is not defined"));
  EXPECT_THAT(LarkError("start: \"é\" A\n"), HasSubstr("lark: line 1, column 12: A is not"));
  EXPECT_THAT(LarkError("start: \"a\"\n\nstart: \"b\""),
              HasSubstr("line 3, column 1: start is def"));
  EXPECT_THAT(LarkError("%import common.INT\nstart: INT\nINT: \"1\""), HasSubstr("defined twice"));
  EXPECT_THAT(LarkError("start: \"a\"\nA: \"x\" start"),
              HasSubstr("line 2, column 8: the rule start"));
  EXPECT_THAT(LarkError("start: \"a\"\n%ignore start"),
              HasSubstr("line 2, column 9: the rule start"));
  EXPECT_THAT(LarkError("start ::= \"a\""), HasSubstr("line 1, column 10: Lark writes \":\""));
  EXPECT_THAT(LarkError("start = \"a\""), HasSubstr("line 1, column 7: expected \":\""));
  EXPECT_THAT(LarkError("Start: \"a\""), HasSubstr("line 1, column 1: the name Start is neither"));
  EXPECT_THAT(LarkError("start: \"a\n"), HasSubstr("line 1, column 10: the literal has no end"));
  EXPECT_THAT(LarkError("start: (\"a\""), HasSubstr("column 12: expected \")\""));
  EXPECT_THAT(LarkError("start: [\"a\")"), HasSubstr("column 12: expected \"]\""));
  EXPECT_THAT(LarkError("start: \"a\" )"), HasSubstr("column 12: expected the end of the line"));
  EXPECT_THAT(LarkError("start: \"\\d\""), HasSubstr("column 11: this escape is not supported"));
  EXPECT_THAT(LarkError("start: \"é\"i"), HasSubstr("column 8: the flag i is supported for ASCII"));
  EXPECT_THAT(LarkError("start: /a/m"), HasSubstr("column 11: the flag m is not supported"));
  EXPECT_THAT(LarkError("start: \"a\"\n  | /a(?=b)/"),
              HasSubstr("line 2, column 5: regular expression: byte 3: lookaround"));
  EXPECT_THAT(LarkError("start: /^a/"), HasSubstr("column 8: regular expression: byte 0: \"^\""));
  EXPECT_THAT(LarkError("start: /[ü]/i"), HasSubstr("the flag i is supported for ASCII only"));
  EXPECT_THAT(LarkError("start: /a"), HasSubstr("the regular expression has no end"));
  EXPECT_THAT(LarkError("start: \"ab\"..\"c\""), HasSubstr("the ends of a range"));
  EXPECT_THAT(LarkError("start: \"z\"..\"a\""), HasSubstr("end is before its beginning"));
  EXPECT_THAT(LarkError("start: \"a\"~3..2"), HasSubstr("least count is above the largest"));
  EXPECT_THAT(LarkError("start: \"a\"~"), HasSubstr("expected a count"));
  EXPECT_THAT(LarkError("start: \"a\"+*"), HasSubstr("column 12: a quantifier follows"));
}

TEST(LarkReaderTest, RefusesWhatIsNotSupportedByName) {
  EXPECT_THAT(LarkError("%declare A\nstart: A"), HasSubstr("line 1, column 1: %declare is not"));
  EXPECT_THAT(LarkError("start: \"a\"\n%extend start: \"b\""),
              HasSubstr("%extend is not supported"));
  EXPECT_THAT(LarkError("%llguidance {}\nstart: \"a\""), HasSubstr("%llguidance is not supported"));
  EXPECT_THAT(LarkError("start: %json {}"), HasSubstr("column 8: statements within a rule"));
  EXPECT_THAT(LarkError("start: list{A}"), HasSubstr("column 12: templates are not supported"));
  EXPECT_THAT(LarkError("list{x}: x\nstart: \"a\""), HasSubstr("templates are not supported"));
  EXPECT_THAT(LarkError("start: <|end|>"), HasSubstr("column 8: special tokens are not supported"));
  EXPECT_THAT(LarkError("start[max_tokens=3]: \"a\""), HasSubstr("attributes of a rule"));
  EXPECT_THAT(LarkError("start: (\"a\" -> x)"), HasSubstr("an alias stands at the end"));
  EXPECT_THAT(LarkError("%import python.NAME\nstart: NAME"), HasSubstr("of the module common"));
  EXPECT_THAT(LarkError("%import common.NAME\nstart: NAME"),
              HasSubstr("line 1, column 16: common has no terminal NAME"));
  EXPECT_THAT(LarkError("%import common.INT -> int\nstart: int"), HasSubstr("alias is a terminal"));
}

TEST(LarkReaderTest, HostileGrammarsAreBounded) {
  std::string deep = "start: ";
  for (int i = 0; i < 100000; ++i) deep += "(";
  EXPECT_THAT(LarkError(deep), HasSubstr("nested deeper than 64"));
  std::string doubling = "start: A0\n";  // a text of 2^60 letters
  for (int i = 0; i < 60; ++i) doubling += absl::StrCat("A", i, ": A", i + 1, " A", i + 1, "\n");
  const auto guide = CompileGuide(Lark(doubling + "A60: \"a\""), ByteVocabulary());
  EXPECT_TRUE(!guide.ok() || !Accepts(**guide, "a"));
  std::string wide = "start: \"a\"";
  for (int i = 0; i < 80000; ++i) wide += absl::StrCat("|\"", i, "\"");
  const auto union_guide = CompileGuide(Lark(wide), ByteVocabulary());
  EXPECT_TRUE(!union_guide.ok() || Accepts(**union_guide, "79999"));
  std::string many;
  for (int i = 0; i < 30000; ++i) many += absl::StrCat("r", i, ": \"a\"\n");
  EXPECT_THAT(LarkError(many), HasSubstr("more than 20000 definitions"));
  EXPECT_THAT(LarkError("start: /(a|b)*a(a|b){20}c|(x|y)*x(x|y){25}/"), HasSubstr("grammar: "));
  std::string lefts = "start: start";  // each is split off
  for (int i = 0; i < 50000; ++i) lefts += absl::StrCat(" | start \"", i, "\"");
  const auto left_guide = CompileGuide(Lark(lefts + " | \"a\""), ByteVocabulary());
  EXPECT_TRUE(!left_guide.ok() || Accepts(**left_guide, "a4999912"));
  std::string nested = "start: ";  // a tail for each group, and each a copy of what follows
  for (int i = 0; i < 60; ++i) nested += "[";
  nested += "start";
  for (int i = 0; i < 60; ++i) nested += "] \"abcdefgh\"";
  EXPECT_TRUE(CompileGuide(Lark(nested), ByteVocabulary()).ok());
}

}  // namespace
}  // namespace quire
