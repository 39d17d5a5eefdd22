// Reasoning before structured answers: what may come next, and that whole texts are as they must
// be, judged by searching them.
#include "engine/grammar/reasoning_guide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "engine/grammar/end_marks.h"
#include "tests/engine/grammar/guide_driver.h"

namespace quire {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSubsetOf;
using ::testing::Not;

constexpr int32_t kBegin = 256, kEnd = 257, kTail = 258, kBeyond = 259, kEos = 260;
constexpr char kMarker[] = "</think>";

std::shared_ptr<const GuideVocabulary> Vocabulary() {
  return ByteVocabulary({"<think>", kMarker, "k>", "k>a"});
}
// A model whose markers are no texts.
std::shared_ptr<const GuideVocabulary> ControlVocabulary() {
  return ByteVocabulary({"", "", "k>", "k>a"});
}

std::vector<int32_t> Spelled(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  return ids;
}

std::shared_ptr<const EndMarks> Marks(std::shared_ptr<const GuideVocabulary> vocabulary,
                                      bool spelled = false) {
  ReasoningMarks marks = {{kBegin}, {kEnd}, kMarker};
  if (spelled) marks = {Spelled("<think>"), Spelled(kMarker), kMarker};
  return std::make_shared<const EndMarks>(std::move(marks), std::move(vocabulary));
}

std::unique_ptr<TokenGuide> StartRow(const ReasoningPlan& plan,
                                     std::shared_ptr<const CompiledGuide> answer,
                                     bool spelled = false) {
  return ReasoningGuide(Marks(Vocabulary(), spelled), plan, std::move(answer)).Start();
}

std::shared_ptr<const CompiledGuide> Letters() {
  return Compile({GrammarKind::kRegex, "[ab]{2}", {}}, Vocabulary());
}

void Take(TokenGuide* row, std::string_view text) {
  for (const char byte : text) ASSERT_TRUE(row->Accept(static_cast<uint8_t>(byte))) << text;
}

TEST(EndMarksTest, TokensAreSortedByWhereTheyLeaveTheMarker) {
  const auto marks = Marks(Vocabulary());
  const auto has = [](const EndMarks::Mask& mask, int32_t token) {
    return (mask[token / 32] >> (token % 32) & 1) != 0;
  };
  EXPECT_TRUE(has(marks->within(0), 'x') && has(marks->within(0), kTail));
  EXPECT_TRUE(has(marks->ends(0), kEnd) && has(marks->ends(3), kEnd));
  EXPECT_TRUE(has(marks->ends(6), kTail) && has(marks->beyond(6), kBeyond));
  EXPECT_TRUE(has(marks->ends(7), '>') && !has(marks->within(7), '>'));
  EXPECT_FALSE(has(marks->within(0), kEos) || has(marks->ends(0), kEos));
  EXPECT_EQ(marks->After(5, '<'), 1u);
  EXPECT_EQ(marks->After(5, 'n'), 6u);
  EXPECT_EQ(marks->After(0, kEnd), std::nullopt);
}

TEST(ReasoningGuideTest, TheAnswerBeginsBehindTheMarker) {
  const auto row = StartRow({.begun = true}, Letters());
  std::vector<int32_t> allowed = Allowed(row.get(), *Vocabulary());
  EXPECT_THAT(allowed, Contains('x'));
  EXPECT_THAT(allowed, Contains(kEnd));
  EXPECT_THAT(allowed, Not(Contains(kEos)));
  EXPECT_FALSE(row->CanEnd());
  Take(row.get(), "so</thin");
  allowed = Allowed(row.get(), *Vocabulary());
  EXPECT_THAT(allowed, Contains(kTail));
  EXPECT_THAT(allowed, Not(Contains(kBeyond)));
  EXPECT_FALSE(row->Accept(kBeyond));
  EXPECT_FALSE(row->Accept(kEos));
  EXPECT_TRUE(row->Accept(kTail));
  EXPECT_THAT(Allowed(row.get(), *Vocabulary()), ElementsAre('a', 'b'));
  Take(row.get(), "ab");
  EXPECT_TRUE(row->CanEnd());
  EXPECT_THAT(Allowed(row.get(), *Vocabulary()), ElementsAre(kEos));
}

TEST(ReasoningGuideTest, AModelMayGoWithout) {
  const auto row = StartRow({}, Letters());
  EXPECT_THAT(Allowed(row.get(), *Vocabulary()), ElementsAre('a', 'b', kBegin));
  EXPECT_TRUE(row->Accept('a'));
  EXPECT_THAT(Allowed(row.get(), *Vocabulary()), ElementsAre('a', 'b'));
  const auto reasons = StartRow({}, Letters());
  EXPECT_TRUE(reasons->Accept(kBegin));
  EXPECT_THAT(Allowed(reasons.get(), *Vocabulary()), Contains('x'));
  const auto spells = StartRow({}, Letters(), /*spelled=*/true);
  EXPECT_THAT(Allowed(spells.get(), *Vocabulary()), ElementsAre('<', 'a', 'b'));
  EXPECT_TRUE(spells->Accept('<'));
  EXPECT_THAT(Allowed(spells.get(), *Vocabulary()), ElementsAre('t'));
  EXPECT_FALSE(spells->Accept('a'));
}

TEST(ReasoningGuideTest, ControlTokensAreMarkersToo) {
  const auto vocabulary = ControlVocabulary();
  const auto answer = Compile({GrammarKind::kRegex, "[ab]{2}", {}}, vocabulary);
  const auto row = ReasoningGuide(Marks(vocabulary), {}, answer).Start();
  EXPECT_THAT(Allowed(row.get(), *vocabulary), ElementsAre('a', 'b', kBegin));
  EXPECT_TRUE(row->Accept(kBegin));
  EXPECT_THAT(Allowed(row.get(), *vocabulary), Contains(kEnd));
  EXPECT_THAT(Allowed(row.get(), *vocabulary), Not(Contains(kBegin)));
  EXPECT_TRUE(row->Accept(kEnd));
  EXPECT_THAT(Allowed(row.get(), *vocabulary), ElementsAre('a', 'b'));
}

TEST(ReasoningGuideTest, BoundsHoldToTheToken) {
  for (const bool spelled : {false, true}) {
    const auto row = StartRow({.begun = true, .min_tokens = 3, .max_tokens = 5}, nullptr, spelled);
    for (int i = 0; i < 5; ++i) {
      const std::vector<int32_t> allowed = Allowed(row.get(), *Vocabulary());
      EXPECT_THAT(allowed, Contains('x'));
      EXPECT_EQ(std::ranges::count(allowed, kEnd), i < 3 ? 0 : 1) << i;
      EXPECT_EQ(std::ranges::count(allowed, kEos), i < 3 ? 0 : 1) << i;
      EXPECT_EQ(row->CanEnd(), i >= 3);
      EXPECT_EQ(i < 3 && row->Accept(kEnd), false);
      EXPECT_TRUE(row->Accept('x'));
    }
    EXPECT_FALSE(row->CanEnd());
    EXPECT_FALSE(row->Accept('x'));
    for (const int32_t id : spelled ? Spelled(kMarker) : std::vector<int32_t>{kEnd}) {
      EXPECT_THAT(Allowed(row.get(), *Vocabulary()), ElementsAre(id));
      EXPECT_TRUE(row->Accept(id));
    }
    EXPECT_EQ(Allowed(row.get(), *Vocabulary()).size(), static_cast<size_t>(kEos + 1));
  }
}

TEST(ReasoningGuideTest, ABoundOfNothingEndsItAtOnce) {
  const auto row = StartRow({.max_tokens = 0}, nullptr);
  EXPECT_TRUE(row->Accept('\n'));
  EXPECT_TRUE(row->Accept(kBegin));
  EXPECT_THAT(Allowed(row.get(), *Vocabulary()), ElementsAre(kEnd));
  const auto free = StartRow({.max_tokens = 0}, nullptr);
  EXPECT_TRUE(free->Accept('H'));
  EXPECT_TRUE(free->Accept(kBegin));  // no longer at the begin
  EXPECT_THAT(Allowed(free.get(), *Vocabulary()), Contains('x'));
}

// Random walks through what is allowed, with few tokens: each ends in time, with one marker and an
// answer of the grammar behind it.
TEST(ReasoningGuideTest, WholeTextsAreReasoningThenAnswer) {
  std::mt19937 random(7);
  const auto vocabulary = Vocabulary();
  const auto answer = Compile({GrammarKind::kRegex, "[ab]{2}c*", {}}, vocabulary);
  const std::regex whole("[ab]{2}c*");
  for (int round = 0; round < 600; ++round) {
    const bool spelled = round % 2 == 0;
    const int64_t most = 10 + random() % 30;
    const ReasoningPlan plan = {.begun = true,
                                .min_tokens = static_cast<int64_t>(random() % 4),
                                .max_tokens = static_cast<int64_t>(random() % 20)};
    const auto row = StartRow(plan, answer, spelled);
    ASSERT_LE(row->TokensToClose(), most);
    std::string text;
    int64_t tokens = 0;
    for (; tokens < most; ++tokens) {
      row->SetBudget(most - tokens - 1);
      std::vector<int32_t> allowed = Allowed(row.get(), *vocabulary);
      ASSERT_FALSE(allowed.empty());
      // Bytes of the marker are as likely as all others together.
      std::erase_if(allowed, [&](int32_t token) {
        return random() % 4 > 0 && token < 256 &&
               std::string_view(kMarker).find(static_cast<char>(token)) == std::string::npos;
      });
      if (allowed.empty()) allowed = Allowed(row.get(), *vocabulary);
      const int32_t token = allowed[random() % allowed.size()];
      ASSERT_TRUE(row->Accept(token));
      if (token == kEos) break;
      text += vocabulary->bytes(token);
    }
    const size_t marker = text.find(kMarker);
    ASSERT_NE(marker, std::string::npos) << text;
    EXPECT_TRUE(std::regex_match(text.substr(marker + 8), whole)) << text;
  }
}

}  // namespace
}  // namespace quire
