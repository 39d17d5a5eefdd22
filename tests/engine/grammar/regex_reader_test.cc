// Regular expressions and GBNF against Python's re, and what is refused.
// Covers engine/grammar/readers/gbnf_reader.cc, engine/grammar/readers/text_cursor.cc,
// engine/grammar/compile_guide.cc
#include "engine/grammar/readers/regex_reader.h"

#include "tests/engine/grammar/text_cases.h"

namespace quire {
namespace {

using testing::HasSubstr;

TEST(RegexReaderTest, AgreesWithPython) {
  const auto cases =
      ReadJsonFile(QUIRE_SOURCE_DIR "/tests/testdata/grammar/regex_cases.json").value();
  EXPECT_GT(cases.size(), 60);
  EXPECT_EQ(Differences(cases, ByteVocabulary()), 0);
}

std::string RegexError(const std::string& text) {
  return CompileError({GrammarKind::kRegex, text});
}
std::string GbnfError(const std::string& text) { return CompileError({GrammarKind::kGbnf, text}); }

TEST(RegexReaderTest, RefusesByNameAndPlace) {
  EXPECT_THAT(RegexError("a(?=b)"), HasSubstr("regex: byte 3: lookaround"));
  EXPECT_THAT(RegexError("(?i)a"), HasSubstr("flags"));
  EXPECT_THAT(RegexError("(a)\\1"), HasSubstr("byte 5: this escape is not supported"));
  EXPECT_THAT(RegexError("\\p{L}"), HasSubstr("this escape is not supported"));
  EXPECT_THAT(RegexError("\\bword"), HasSubstr("this escape is not supported"));
  EXPECT_THAT(RegexError("a(^b)"), HasSubstr("ends of the expression only"));
  EXPECT_THAT(RegexError("a$b"), HasSubstr("end of the expression only"));
  EXPECT_THAT(RegexError("(a"), HasSubstr("byte 2: expected \")\""));
  EXPECT_THAT(RegexError("a)"), HasSubstr("closes no group"));
  EXPECT_THAT(RegexError("[a"), HasSubstr("expected \"]\""));
  EXPECT_THAT(RegexError("[]a]"), HasSubstr("an empty class"));
  EXPECT_THAT(RegexError("[z-a]"), HasSubstr("end is before its beginning"));
  EXPECT_THAT(RegexError("[a-\\d]"), HasSubstr("a range between classes"));
  EXPECT_THAT(RegexError("*a"), HasSubstr("nothing to repeat"));
  EXPECT_THAT(RegexError("a++"), HasSubstr("a quantifier follows a quantifier"));
  EXPECT_THAT(RegexError("a{3,2}"), HasSubstr("least count is above the largest"));
  EXPECT_THAT(RegexError("a{,3}"), HasSubstr("write {0,n}"));
  EXPECT_THAT(RegexError("a{99999999999}"), HasSubstr("too large"));
  EXPECT_THAT(RegexError("\\ud800"), HasSubstr("half of a surrogate pair"));
  EXPECT_THAT(RegexError("\\x4"), HasSubstr("expected 2 hexadecimal digits"));
  EXPECT_THAT(RegexError("a\xFF"), HasSubstr("byte 1: not valid UTF-8"));
  EXPECT_THAT(RegexError("a\\"), HasSubstr("nothing after"));
  EXPECT_THAT(RegexError("[^\\s\\S]"), HasSubstr("no text can be finished"));
}

TEST(GbnfReaderTest, RefusesByNameAndPlace) {
  EXPECT_THAT(GbnfError(""), HasSubstr("there is no rule root"));
  EXPECT_THAT(GbnfError("root ::= a"), HasSubstr("rule a is not defined"));
  EXPECT_THAT(GbnfError("root ::= \"a\"\nroot ::= \"b\""), HasSubstr("root is defined twice"));
  EXPECT_THAT(GbnfError("root = \"a\""), HasSubstr("byte 5: expected ::="));
  EXPECT_THAT(GbnfError("root ::= \"a"), HasSubstr("the literal has no end"));
  EXPECT_THAT(GbnfError("root ::= [a"), HasSubstr("the class has no end"));
  EXPECT_THAT(GbnfError("root ::= (\"a\""), HasSubstr("expected \")\""));
  EXPECT_THAT(GbnfError("root ::= \"a\" )"), HasSubstr("expected the end of the rule"));
  EXPECT_THAT(GbnfError("root ::= <[12]>"), HasSubstr("tokens are not supported"));
  EXPECT_THAT(GbnfError("root ::= \"\\q\""), HasSubstr("this escape is not supported"));
  EXPECT_THAT(GbnfError("root ::= \"a\"{2"), HasSubstr("expected \"}\""));
  EXPECT_THAT(GbnfError("root ::= root \"a\" | \"a\""),
              HasSubstr("rule root can lead to itself before any text"));
  EXPECT_THAT(GbnfError("root ::= \"x\" a\na ::= b? c\nb ::= \"b\"\nc ::= a | \"c\""),
              HasSubstr("can lead to itself"));
  EXPECT_THAT(GbnfError("root ::= \"a\" root"), HasSubstr("no text can be finished"));
}

}  // namespace
}  // namespace quire
