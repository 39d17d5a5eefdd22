// Masks against the definition: a token is allowed exactly where some text of the grammar goes on
// with it, found by trying every token and every text of small vocabularies.
// Covers engine/grammar/mask_part.cc, engine/grammar/mask_store.cc, engine/grammar/places.cc,
// engine/grammar/pushdown.cc, engine/grammar/pushdown_closing.cc, engine/grammar/stacks.cc,
// engine/grammar/pushdown_guide.cc, engine/grammar/rules/nfa.cc, engine/grammar/rules/grammar.cc,
// engine/grammar/rules/automaton_builder.cc
#include "engine/grammar/token_guide.h"

#include <algorithm>
#include <functional>
#include <regex>
#include <set>
#include <thread>

#include "tests/engine/grammar/guide_driver.h"

namespace quire {
namespace {

// All texts of at most `length` letters that `accepts` takes.
std::set<std::string> Texts(const std::string& letters, size_t length,
                            const std::function<bool(const std::string&)>& accepts) {
  std::set<std::string> texts;
  std::vector<std::string> work = {""};
  for (size_t at = 0; at < work.size(); ++at) {
    const std::string text = work[at];
    if (accepts(text)) texts.insert(text);
    if (text.size() == length) continue;
    for (const char c : letters) work.push_back(text + c);
  }
  return texts;
}

struct Exhaustive {
  std::string name;
  GrammarSource source;
  std::string letters;
  size_t length;  // all texts up to it are tried
  size_t beyond;  // every prefix is finished by at most so many letters more
  std::function<bool(const std::string&)> accepts;
};

bool IsPrefixOfAny(const std::set<std::string>& texts, const std::string& prefix) {
  const auto at = texts.lower_bound(prefix);
  return at != texts.end() && at->starts_with(prefix);
}

class MaskTest : public testing::TestWithParam<Exhaustive> {};

// Walks every way through the masks up to length - beyond letters.
TEST_P(MaskTest, AllowsExactlyWhatCanBeFinished) {
  const Exhaustive& given = GetParam();
  const std::set<std::string> texts = Texts(given.letters, given.length, given.accepts);
  std::vector<std::string> tokens;
  for (const char c : given.letters) tokens.emplace_back(1, c);
  for (const char a : given.letters) {
    for (const char b : given.letters) tokens.push_back({a, b});
  }
  tokens.push_back(given.letters);
  tokens.emplace_back();
  const auto eos = static_cast<int32_t>(tokens.size() - 1);
  const auto vocabulary = GuideVocabulary::Make(tokens, {eos}).value();
  const auto guide = Compile(given.source, vocabulary);
  ASSERT_NE(guide, nullptr);

  const std::function<void(const std::vector<int32_t>&, const std::string&)> visit =
      [&](const std::vector<int32_t>& way, const std::string& text) {
        const auto row = guide->Start();
        for (const int32_t token : way) ASSERT_TRUE(row->Accept(token));
        const std::vector<int32_t> allowed = Allowed(row.get(), *vocabulary);
        ASSERT_FALSE(allowed.empty()) << text;
        EXPECT_EQ(row->CanEnd(), texts.contains(text)) << text;
        for (int32_t token = 0; token < vocabulary->size(); ++token) {
          const bool in_mask = std::count(allowed.begin(), allowed.end(), token) > 0;
          if (token == eos) {
            EXPECT_EQ(in_mask, texts.contains(text)) << text;
            continue;
          }
          const std::string next = text + tokens[token];
          if (next.size() + given.beyond > given.length) continue;
          EXPECT_EQ(in_mask, IsPrefixOfAny(texts, next)) << text << " + " << tokens[token];
          if (!in_mask) {
            EXPECT_FALSE(row->Accept(token));
            continue;
          }
          std::vector<int32_t> longer = way;
          longer.push_back(token);
          visit(longer, next);
        }
      };
  visit({}, "");
}

bool Balanced(const std::string& text) {
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (depth < 0 || c == 'x') return false;
  }
  return depth == 0 && !text.empty();
}

bool Palindrome(const std::string& text) {
  return std::equal(text.begin(), text.end(), text.rbegin());
}

// a^n b^n, then as many letters as one likes: c.
bool Counted(const std::string& text) {
  const size_t a = text.find_first_not_of('a'), n = a == std::string::npos ? text.size() : a;
  const std::string rest = text.substr(n);
  return n > 0 && rest.starts_with(std::string(n, 'b')) &&
         rest.find_first_not_of('c', n) == std::string::npos;
}

std::function<bool(const std::string&)> Regex(const std::string& pattern) {
  return [compiled = std::regex(pattern)](const std::string& text) {
    return std::regex_match(text, compiled);
  };
}

GrammarSource RegexSource(const std::string& text) { return {GrammarKind::kRegex, text}; }
GrammarSource GbnfSource(const std::string& text) { return {GrammarKind::kGbnf, text}; }
GrammarSource LarkSource(const std::string& text) { return {GrammarKind::kLark, text}; }

INSTANTIATE_TEST_SUITE_P(
    All, MaskTest,
    testing::Values(
        Exhaustive{"Choice",
                   {GrammarKind::kChoice, "", {"ab", "abc", "ca"}},
                   "abc",
                   6,
                   2,
                   Regex("ab|abc|ca")},
        Exhaustive{"Loop", RegexSource("(a|bc)*c"), "abc", 7, 2, Regex("(a|bc)*c")},
        Exhaustive{"Ambiguous", RegexSource("(a|ab|b)*c?a{2}"), "abc", 7, 3,
                   Regex("(a|ab|b)*c?a{2}")},
        Exhaustive{"Suffix", RegexSource(".*a.{2}"), "ab", 9, 3, Regex(".*a.{2}")},
        Exhaustive{"Counts", RegexSource("a{2,3}(b{1,2}a)*"), "ab", 9, 3,
                   Regex("a{2,3}(b{1,2}a)*")},
        Exhaustive{"Brackets", GbnfSource("root ::= pair+\npair ::= \"(\" pair* \")\""), "()x", 8,
                   4, Balanced},
        Exhaustive{"RightRecursion", GbnfSource("root ::= \"a\" root | \"b\" root | \"c\""), "abc",
                   7, 2, Regex("[ab]*c")},
        // A token may end several rules and go on, each of which could have gone on by itself.
        Exhaustive{"EndsOfRules",
                   GbnfSource("root ::= list \";\"\nlist ::= item (\",\" item)*\n"
                              "item ::= word \"a\"*\nword ::= \"a\" \"a\"?"),
                   ",;a", 7, 2, Regex("a+(,a+)*;")},
        Exhaustive{"Palindromes",
                   GbnfSource("root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"a\"? | \"b\""),
                   "ab", 10, 5, Palindrome},
        Exhaustive{"LeftRecursion", LarkSource("start: start \"b\" | start \"ca\" | \"a\""), "abc",
                   8, 3, Regex("a(b|ca)*")},
        Exhaustive{"Ignored", LarkSource("start: WORD \";\"\nWORD: /a+/\n%ignore \" \""), "a ;", 8,
                   3, Regex(" *a+ *; *")},
        Exhaustive{"EmptyRules",
                   GbnfSource("root ::= none pair tail\nnone ::= \"\" | none2\nnone2 ::= \"\"\n"
                              "pair ::= \"a\" pair? \"b\"\ntail ::= (\"c\" tail)?"),
                   "abc", 8, 4, Counted}),
    [](const auto& info) { return info.param.name; });

// In a vocabulary of many texts that begin alike, whole branches of them are allowed at once.
TEST(TokenGuideTest, BranchesOfTheVocabulary) {
  std::vector<std::string> tokens;
  for (size_t at = 0, length = 1; length <= 5; ++length) {  // all texts of up to 5 letters
    const size_t end = tokens.size();
    if (length == 1) tokens = {"a", "b", "\"", "0"};
    for (; length > 1 && at < end; ++at) {
      for (const char c : std::string("ab\"0")) tokens.push_back(tokens[at] + c);
    }
  }
  tokens.emplace_back();
  const auto eos = static_cast<int32_t>(tokens.size() - 1);
  const auto vocabulary = GuideVocabulary::Make(tokens, {eos}).value();
  ASSERT_EQ(vocabulary->size(), 4 + 16 + 64 + 256 + 1024 + 1);
  std::mt19937 random(9);
  for (const GrammarSource& source :
       {RegexSource("[ab]*"), RegexSource("\"[ab]*\"0*"), RegexSource("([ab0]*\"){2}"),
        RegexSource("[ab]{0,40}0"), RegexSource("a[ab]{2,50}[b0]{1,9}"), RegexSource("(a[b0]*)*"),
        GbnfSource("root ::= name (\"0\" name)*\nname ::= [ab]+"),
        GbnfSource("root ::= \"0\" [ab]* root? | \"\\\"\""),
        GbnfSource("root ::= word | word \"0\"\nword ::= [ab]* end?\nend ::= [b0]+"),
        LarkSource("start: NAME+\nNAME: /[ab]+/\n%ignore \"0\"")}) {
    const auto guide = Compile(source, vocabulary);
    for (int walk = 0; walk < 6; ++walk) {
      std::vector<int32_t> way;
      for (int step = 0; step < 5; ++step) {
        const auto row = guide->Start();
        for (const int32_t token : way) ASSERT_TRUE(row->Accept(token));
        const std::vector<int32_t> allowed = Allowed(row.get(), *vocabulary);
        std::vector<int32_t> accepted;
        for (int32_t token = 0; token < vocabulary->size(); ++token) {
          const auto fresh = guide->Start();
          for (const int32_t before : way) ASSERT_TRUE(fresh->Accept(before));
          if (fresh->Accept(token)) accepted.push_back(token);
        }
        ASSERT_EQ(allowed, accepted) << source.text << " after " << way.size();
        const int32_t token = allowed[random() % allowed.size()];
        if (token == eos) break;
        way.push_back(token);
      }
    }
  }
}

// A repetition that is counted, not written out, has the same masks.
TEST(TokenGuideTest, LargeCounts) {
  const auto vocabulary = ByteVocabulary({"aa", "aaaa", "aaaaaaaa", "aab", "ab", "ba"});
  const auto guide = Compile(RegexSource("a{20,40}b"), vocabulary);
  for (int written = 0; written <= 40; ++written) {
    const auto row = guide->Start();
    for (int i = 0; i < written; ++i) ASSERT_TRUE(row->Accept('a'));
    EXPECT_FALSE(row->CanEnd());
    std::set<std::string> allowed, expected;
    for (const int32_t token : Allowed(row.get(), *vocabulary)) {
      allowed.emplace(vocabulary->bytes(token));
    }
    for (const std::string token : {"a", "b", "aa", "aaaa", "aaaaaaaa", "aab", "ab", "ba"}) {
      const int letters = written + static_cast<int>(std::count(token.begin(), token.end(), 'a'));
      const bool ends = token.back() == 'b';
      if (token == "ba" || letters > 40 || (ends && letters < 20)) continue;
      expected.insert(token);
    }
    EXPECT_EQ(allowed, expected) << written;
    // Single letters up to 20, then b.
    EXPECT_EQ(row->TokensToClose(), std::max(0, 20 - written) + 1) << written;
  }
  const auto open = Compile(RegexSource("[ab]{40,}"));
  EXPECT_FALSE(Accepts(*open, std::string(39, 'a')));
  EXPECT_TRUE(Accepts(*open, std::string(40, 'b')));
  EXPECT_TRUE(Accepts(*open, std::string(300, 'a')));
}

TEST(TokenGuideTest, CharactersMayBeSplitOverTokens) {
  const auto vocabulary = ByteVocabulary({"\xC3\xA9t", "\xA9t\xC3", "\xA9"});
  const auto guide = Compile(RegexSource("[\u00e0-\u00ff]t[\u4e16\U0001F600]"), vocabulary);
  const auto row = guide->Start();
  EXPECT_TRUE(row->Accept(0xC3));
  EXPECT_FALSE(row->Accept(257));
  EXPECT_TRUE(row->Accept(258));  // the second half
  EXPECT_TRUE(row->Accept('t'));
  EXPECT_THAT(Allowed(row.get(), *vocabulary), testing::ElementsAre(0xE4, 0xF0));
  EXPECT_EQ(row->TokensToClose(), 3);
  for (const uint8_t byte : {0xE4, 0xB8, 0x96}) EXPECT_TRUE(row->Accept(byte));
  EXPECT_TRUE(row->CanEnd());
  EXPECT_FALSE(row->Accept(0xE4));
  EXPECT_THAT(Allowed(row.get(), *vocabulary), testing::ElementsAre(vocabulary->size() - 1));
  EXPECT_TRUE(row->Accept(vocabulary->size() - 1));
}

TEST(TokenGuideTest, RefusedTokensChangeNothing) {
  const auto vocabulary = ByteVocabulary();
  const auto guide = Compile(RegexSource("ab"), vocabulary);
  const auto row = guide->Start();
  for (const int32_t token : {-1, vocabulary->size(), vocabulary->size() - 1, int32_t{'b'}}) {
    EXPECT_FALSE(row->Accept(token)) << token;
  }
  EXPECT_TRUE(row->Accept('a'));
  EXPECT_TRUE(row->Accept('b'));
}

// With the budget set before each mask, every text ends in time, and the shortest ways are counted
// in tokens, not bytes.
TEST(TokenGuideTest, Budget) {
  const auto vocabulary = ByteVocabulary({"true", "false", "\"answer\"", " yes", "((((", "))"});
  std::mt19937 random(7);
  for (const auto& [source, shortest] : std::vector<std::pair<GrammarSource, int64_t>>{
           {RegexSource("[a-z]*\"answer\":(true|false)"), 3},
           {GbnfSource("root ::= \"(\" root? \")\""), 2},
           {RegexSource("(x{50}|y{30,40}) yes"), 31},
           {{GrammarKind::kChoice, "", {"false", "\"answer\"false"}}, 1}}) {
    const auto guide = Compile(source, vocabulary);
    ASSERT_EQ(guide->Start()->TokensToClose(), shortest);
    for (int64_t max_tokens = shortest; max_tokens < shortest + 40; ++max_tokens) {
      const std::string text = RandomText(*guide, *vocabulary, max_tokens, &random);
      EXPECT_TRUE(Accepts(*guide, text)) << text;
    }
  }
}

TEST(TokenGuideTest, ABudgetThatCannotBeKeptIsNoLimit) {
  const auto vocabulary = ByteVocabulary();
  const auto row = Compile(RegexSource("abc"), vocabulary)->Start();
  row->SetBudget(1);
  EXPECT_THAT(Allowed(row.get(), *vocabulary), testing::ElementsAre('a'));
}

// A byte without a token of its own is allowed as a part of tokens that end well.
TEST(TokenGuideTest, BytesWithoutATokenAreNoDeadEnds) {
  const auto vocabulary = GuideVocabulary::Make({"a", "ab", "b", "ac", "<eos>"}, {4}).value();
  const auto guide = Compile(RegexSource("a(b|c)*a?"), vocabulary);
  const auto row = guide->Start();
  EXPECT_THAT(Allowed(row.get(), *vocabulary), testing::ElementsAre(0, 1, 3));
  EXPECT_FALSE(CompileGuide(RegexSource("ad"), vocabulary).ok());
  EXPECT_TRUE(CompileGuide(RegexSource("a(b|d)"), vocabulary).ok());
}

// Rows share what one of them has computed; the store drops and makes again what exceeds it.
TEST(TokenGuideTest, SmallStoreOfMasks) {
  const auto vocabulary = ByteVocabulary({"ab", "ba", "abab"});
  const GrammarSource source = RegexSource("(ab|ba){3,30}(c|d){2}");
  const auto large = Compile(source, vocabulary);
  const auto small = Compile(source, vocabulary, {.max_mask_bytes = 1});
  std::mt19937 a(3), b(3);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(RandomText(*large, *vocabulary, 70, &a), RandomText(*small, *vocabulary, 70, &b));
  }
  EXPECT_GT(large->bytes(), small->bytes());
}

// Rows on several threads, with a store that drops parts all the time, get the same masks.
TEST(TokenGuideTest, RowsOnSeveralThreads) {
  const auto vocabulary = ByteVocabulary({"ab", "ba", "abab"});
  const auto guide =
      Compile(RegexSource("(ab|ba){3,30}(c|d){2}"), vocabulary, {.max_mask_bytes = 2000});
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts) {
    threads.emplace_back([&] {
      std::mt19937 random(9);
      for (int i = 0; i < 40; ++i) text += RandomText(*guide, *vocabulary, 70, &random);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
}

}  // namespace
}  // namespace quire
