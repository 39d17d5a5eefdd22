// The hand-written scanners compared with the same patterns in PCRE2, and the refused patterns.
// Covers server/text/unicode/unicode_tables.cc, server/text/unicode/char_kinds.cc,
// server/text/unicode/char_kind_tables.cc, server/text/pieces/kind_scanner.cc
#include "server/text/pieces/piece_splitter.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/pattern/regex_pattern.h"
#include "server/text/pieces/pattern_splitter.h"
#include "server/text/pieces/scanner.h"
#include "server/text/unicode/unicode.h"
#include "tests/server/text/string_recipe.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

std::vector<Span> Cut(const PieceSplitter& splitter, std::string_view text) {
  std::vector<Span> pieces;
  const Span whole[] = {{0, static_cast<uint32_t>(text.size())}};
  const absl::Status status = splitter.Split(text, whole, &pieces);
  EXPECT_TRUE(status.ok()) << status;
  return pieces;
}

std::vector<std::string> Pieces(const PieceSplitter& splitter, const std::string& text) {
  std::vector<std::string> out;
  for (const Span& piece : Cut(splitter, text)) {
    out.push_back(text.substr(piece.begin, piece.end - piece.begin));
  }
  return out;
}

std::unique_ptr<const PieceSplitter> Regex(const std::string& pattern,
                                           SplitBehavior behavior = SplitBehavior::kIsolated,
                                           bool invert = false) {
  auto made = MakeRegexPattern(pattern);
  EXPECT_TRUE(made.ok()) << made.status();
  return MakePatternSplitter(std::move(made).value(), behavior, invert);
}

class ScannerTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<const PieceSplitter> scanner_ = MakeScanner(GetParam());
  const std::unique_ptr<const PieceSplitter> regex_ = Regex(GetParam());
};

TEST_P(ScannerTest, EqualsTheRegexOnGeneratedStrings) {
  const StringRecipe recipe = StringRecipe::Read();
  RecipeRandom random(99);
  for (int i = 0; i < 30000; ++i) {
    const std::string text = recipe.Make(&random);
    ASSERT_EQ(Cut(*scanner_, text), Cut(*regex_, text)) << text;
  }
}

TEST_P(ScannerTest, EqualsTheRegexAroundEveryCodePoint) {
  // A few hundred code points per text, each in every context that a branch distinguishes.
  std::string text;
  for (char32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    // The private planes count as one case.
    if (c >= 0xF0100 && c < 0x10FF00) continue;
    std::string one;
    AppendUtf8(c, &one);
    text += "x" + one + "y " + one + " '" + one + "1" + one + "\n" + one;
    if (text.size() < 8192) continue;
    ASSERT_EQ(Cut(*scanner_, text), Cut(*regex_, text)) << "up to " << static_cast<uint32_t>(c);
    text.clear();
  }
}

TEST_P(ScannerTest, EqualsTheRegexOnShortTexts) {
  // Two letters without case, a mark, a long s and a control character among them.
  const std::vector<std::string> alphabet = {"a",        "S",        "'",        "1",
                                             "!",        " ",        "\n",       "\t",
                                             "\xC5\xBF", "\xC3\xA9", "\xCC\x81", "\xE4\xB8\x96",
                                             "\xCA\xB0", "/",        "\x01"};
  // Every seventh of the texts of five.
  for (int n = 0; n < 15 * 15 * 15 * 15 * 15; n += 7) {
    std::string text;
    for (int i = 0, rest = n; i < 5; ++i, rest /= 15) text += alphabet[rest % 15];
    ASSERT_EQ(Cut(*scanner_, text), Cut(*regex_, text)) << text;
  }
}

// As the patterns stand in files that write a newline as itself.
TEST_P(ScannerTest, KnowsThePatternWithNewlinesInIt) {
  std::string pattern = GetParam();
  for (const auto& [written, itself] : {std::pair("\\r", "\r"), std::pair("\\n", "\n")}) {
    for (size_t at = 0; (at = pattern.find(written, at)) != pattern.npos;) {
      pattern.replace(at, 2, itself);
    }
  }
  EXPECT_NE(MakeScanner(pattern), nullptr);
}

TEST_P(ScannerTest, AcceptsTheEmptyText) { EXPECT_TRUE(Cut(*scanner_, "").empty()); }

INSTANTIATE_TEST_SUITE_P(Patterns, ScannerTest,
                         ::testing::Values(kGpt2Pattern, kLlama3Pattern, kQwen2Pattern,
                                           kSeedPattern, kO200kPattern, kTekkenPattern,
                                           kDeepSeekPattern, kDeepSeekCjkPattern, "\\p{N}{1,3}",
                                           "\\p{N}", "\\p{N}+"));

TEST(ScannerTest, KnowsOnlyExactPatterns) {
  EXPECT_EQ(MakeScanner(std::string(kGpt2Pattern) + " "), nullptr);
  EXPECT_EQ(MakeScanner(""), nullptr);
  // These leave text between their matches.
  EXPECT_EQ(MakeScanner(kDeepSeekPattern, /*drops_rest=*/true), nullptr);
  EXPECT_EQ(MakeScanner("\\p{N}", /*drops_rest=*/true), nullptr);
  EXPECT_NE(MakeScanner(kO200kPattern, /*drops_rest=*/true), nullptr);
}

TEST(DigitSplitterTest, SeparatesDigits) {
  using List = std::vector<std::string>;
  EXPECT_EQ(Pieces(*MakeDigitSplitter(true), "ab12 \u0663x"),
            (List{"ab", "1", "2", " ", "\u0663", "x"}));
  EXPECT_EQ(Pieces(*MakeDigitSplitter(false), "ab12\u0663 7"), (List{"ab", "12\u0663", " ", "7"}));
}

// The answers are those of tokenizers.pre_tokenizers.Split 0.23.3.
TEST(PatternSplitterTest, TreatsMatchesAsTheBehaviorSays) {
  using List = std::vector<std::string>;
  const auto pieces = [](SplitBehavior behavior, bool invert = false) {
    return Pieces(*Regex("-", behavior, invert), "the-final--countdown-");
  };
  EXPECT_EQ(pieces(SplitBehavior::kRemoved), (List{"the", "final", "countdown"}));
  EXPECT_EQ(pieces(SplitBehavior::kIsolated),
            (List{"the", "-", "final", "-", "-", "countdown", "-"}));
  EXPECT_EQ(pieces(SplitBehavior::kMergedWithPrevious),
            (List{"the-", "final-", "-", "countdown-"}));
  EXPECT_EQ(pieces(SplitBehavior::kMergedWithNext),
            (List{"the", "-final", "-", "-countdown", "-"}));
  EXPECT_EQ(pieces(SplitBehavior::kContiguous),
            (List{"the", "-", "final", "--", "countdown", "-"}));
  EXPECT_EQ(pieces(SplitBehavior::kRemoved, true), (List{"-", "-", "-", "-"}));
  EXPECT_EQ(pieces(SplitBehavior::kMergedWithPrevious, true),
            (List{"the", "-final", "-", "-countdown", "-"}));
}

TEST(PatternSplitterTest, SeesTheByteAlphabetAfterByteLevel) {
  // The byte B2 of U+4E72 is written as a superscript two, which is a number.
  const auto splitter = MakeAlphabetSplitter(MakeDigitSplitter(true));
  EXPECT_EQ(Pieces(*splitter, "a7\xE4\xB9\xB2"),
            (std::vector<std::string>{"a", "7", "\xE4", "\xB9", "\xB2"}));
}

TEST(RegexSplitterTest, KeepsTheTextBetweenMatches) {
  EXPECT_EQ(Pieces(*Regex("\\p{L}+"), "ab, cd!"),
            (std::vector<std::string>{"ab", ", ", "cd", "!"}));
}

TEST(RegexSplitterTest, ReadsEscapesAsTheTokenizersPackage) {
  // In PCRE2 \v is a class and \s includes U+180E.
  EXPECT_EQ(Pieces(*Regex("\\v"), "a\nb\vc"), (std::vector<std::string>{"a\nb", "\v", "c"}));
  EXPECT_EQ(Pieces(*Regex("\\s+"), "a\u180E\u2003b"),
            (std::vector<std::string>{"a\u180E", "\u2003", "b"}));
  EXPECT_EQ(Pieces(*Regex("\\u00e9|\\x{4e16}"), "x\u00e9y\u4e16").size(), 4u);
  EXPECT_EQ(Pieces(*Regex("\\d+"), "a1\u0663b"), (std::vector<std::string>{"a", "1\u0663", "b"}));
}

// The answers are those of tokenizers.pre_tokenizers.Split 0.23.3.
TEST(RegexSplitterTest, ReadsLinesAndWordsAsTheTokenizersPackage) {
  using List = std::vector<std::string>;
  EXPECT_EQ(Pieces(*Regex("^a"), "aa\na\n"), (List{"a", "a\n", "a", "\n"}));
  EXPECT_EQ(Pieces(*Regex("a$"), "aa\naa"), (List{"a", "a", "\na", "a"}));
  EXPECT_EQ(Pieces(*Regex("\\s+$"), "a  \n b \n"), (List{"a", "  ", "\n b", " \n"}));
  EXPECT_EQ(Pieces(*Regex("\\w+"), "a\u00b2\u0301-_\u200d"),
            (List{"a\u00b2\u0301", "-", "_", "\u200d"}));
  EXPECT_EQ(Pieces(*Regex("\\W"), "a-b"), (List{"a", "-", "b"}));
}

TEST(RegexSplitterTest, NamesRefusedConstructs) {
  const auto refusal = [](const std::string& pattern) {
    auto splitter = MakeRegexPattern(pattern);
    EXPECT_FALSE(splitter.ok()) << pattern;
    return std::string(splitter.status().message());
  };
  for (const char* pattern :
       {"^*a",         "a$?",     "[\\W]",   "\\bx",     "\\hx",    "\\Rx",
        "(?i)a",       "(?i:z)x", "a{,3}b",  "a{2}+",    "a{257}",  "a{1,257}",
        "[[:alpha:]]", "[a&&b]",  "(?<n>a)", "(*FAIL)a", "\\1",     "\\p{Alpha}",
        "[\\S]",       "\\pL",    "\\Kx",    "(?R)x",    "(?i:^'s)"}) {
    EXPECT_THAT(refusal(pattern), HasSubstr("not supported")) << pattern;
  }
  EXPECT_THAT(refusal("a*"), HasSubstr("matches the empty text"));
  EXPECT_THAT(refusal("(a"), HasSubstr("does not compile"));
  EXPECT_THAT(refusal("[a"), HasSubstr("class without an end"));
  EXPECT_THAT(refusal(std::string(100'000, 'a')), HasSubstr("longer than"));
}

TEST(RegexSplitterTest, RefusesAtLoadPatternsThatExplodeOnShortRuns) {
  for (const char* pattern : {"(a+)+[!?]", "(\\s*)*x", "(?:\u6c34|\u6c34\u6c34)+x", "(\\p{L}+)*\\d",
                              "\\w*\\w*\\w*\\w*\\w*-"}) {
    const auto made = MakeRegexPattern(pattern);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(std::string(made.status().message()), HasSubstr("it backtracks too long"))
        << pattern;
  }
}

TEST(RegexSplitterTest, AcceptsAMillionOfOneLetter) {
  EXPECT_EQ(
      Cut(*Regex("[\\p{Lu}\\p{Lo}\\p{Ll}]*[\\p{Ll}\\p{Lo}]+|\\s+"), std::string(1 << 20, 'a')),
      (std::vector<Span>{{0, 1 << 20}}));
}

}  // namespace
}  // namespace quire
