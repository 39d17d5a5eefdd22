// Sets of code points, products of automata and the limits on their size.
#include "engine/grammar/rules/automaton.h"

#include "engine/grammar/rules/automaton_builder.h"
#include "engine/grammar/rules/code_set.h"
#include "engine/grammar/rules/guide_limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using testing::ElementsAre;

bool Accepts(const Automaton& automaton, std::string_view text) {
  uint32_t state = 0;
  for (const char c : text) {
    state = automaton.Next(state, static_cast<uint8_t>(c));
    if (state == Automaton::kDead) return false;
  }
  return automaton.states[state].accepts;
}

TEST(CodeSetTest, RangesJoinAndComplement) {
  CodeSet set{{'d', 'f'}, {'a', 'b'}};
  set.Add({'c', 'c'});
  EXPECT_THAT(set.ranges(), ElementsAre(CodeRange{'a', 'f'}));
  set.Add({'x', 'z'});
  EXPECT_THAT(set.Without({{'b', 'y'}}).ranges(),
              ElementsAre(CodeRange{'a', 'a'}, CodeRange{'z', 'z'}));
  EXPECT_THAT(set.Complement().Complement().ranges(), testing::ContainerEq(set.ranges()));
  EXPECT_FALSE(CodeSet().Complement().Contains(0xD800));
  EXPECT_TRUE(CodeSet().Complement().Contains(0x10FFFF));
  EXPECT_TRUE(CodeSet().Complement().Complement().empty());
}

// UTF-8 as Unicode defines it, code point by code point.
std::string Utf8(char32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

TEST(CodeSetTest, SequencesWriteExactlyTheMembers) {
  const CodeSet set{{'A', 0x85}, {0x7F0, 0x2345}, {0xD000, 0xE010}, {0xFFF0, 0x103FF}};
  Grammar grammar;
  WorkMeter meter({});
  const auto automaton = AutomatonBuilder(grammar, &meter).Build(grammar.Chars(set));
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
    ASSERT_EQ(Accepts(*automaton, Utf8(c)), !surrogate && set.Contains(c))
        << std::hex << static_cast<int>(c);
  }
}

TEST(AutomatonTest, Intersection) {
  Grammar grammar;
  WorkMeter meter({});
  const auto build = [&](ExprId expr) { return AutomatonBuilder(grammar, &meter).Build(expr); };
  const ExprId letter = grammar.Chars({{'a', 'c'}});
  const auto words = build(grammar.Repeat(letter, 1, 3));
  const auto some = build(grammar.Choice({grammar.Bytes("ab"), grammar.Bytes("abcc")}));
  const auto both = Intersection(*words, *some, /*except=*/false, &meter);
  const auto rest = Intersection(*words, *some, /*except=*/true, &meter);
  for (const char* text : {"", "a", "ab", "abc", "abcc", "cab", "x"}) {
    const bool in_both = Accepts(*words, text) && Accepts(*some, text);
    EXPECT_EQ(Accepts(*both, text), in_both) << text;
    EXPECT_EQ(Accepts(*rest, text), Accepts(*words, text) && !in_both) << text;
  }
}

TEST(WorkMeterTest, StopsWhatIsTooLarge) {
  Grammar grammar;
  const ExprId part = grammar.Choice({grammar.Bytes("a"), grammar.Bytes("ab")});
  const ExprId expr = grammar.Repeat(grammar.Repeat(part, 1000, 1000), 1000, 1000);
  WorkMeter meter({.max_states = 100});
  EXPECT_EQ(AutomatonBuilder(grammar, &meter).Build(expr), nullptr);
  EXPECT_EQ(meter.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quire
