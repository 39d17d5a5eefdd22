// The trie holds each text once, in order, and finds the longest token of a text.
#include "engine/grammar/guide_vocabulary.h"

#include "engine/grammar/compile_guide.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(GuideVocabularyTest, TrieHoldsEveryText) {
  const auto vocabulary =
      GuideVocabulary::Make({"b", "", "ab", "a", "abc", "ab", "\xFF", "</s>"}, {7}).value();
  std::vector<std::string> texts;
  std::string way;
  for (uint32_t node = 0; node < vocabulary->nodes().size(); ++node) {
    const TrieNode& at = vocabulary->nodes()[node];
    way.resize(at.depth - 1);
    way.push_back(static_cast<char>(at.byte));
    for (const int32_t token : vocabulary->tokens_at(node)) {
      EXPECT_EQ(vocabulary->bytes(token), way);
      texts.push_back(way);
    }
  }
  EXPECT_THAT(texts, ElementsAre("a", "ab", "ab", "abc", "b", "\xFF"));
  EXPECT_EQ(vocabulary->nodes()[0].end, 3);  // a, ab, abc
  EXPECT_EQ(vocabulary->nodes()[3].end, 4);
  EXPECT_EQ(vocabulary->max_token_bytes(), 3);
  EXPECT_TRUE(vocabulary->has_byte('a'));
  EXPECT_FALSE(vocabulary->has_byte('c'));
  EXPECT_EQ(vocabulary->mask_words(), 1);
}

TEST(GuideVocabularyTest, LargeBranchesKnowTheirBytes) {
  std::vector<std::string> tokens = {"x", "</s>"};
  for (char c = 'a'; c <= 't'; ++c) tokens.push_back({'x', c, 'z'});
  const auto vocabulary = GuideVocabulary::Make(tokens, {1}).value();
  ASSERT_NE(vocabulary->bytes_below(0), nullptr);
  std::bitset<256> expected;
  for (char c = 'a'; c <= 't'; ++c) expected.set(static_cast<uint8_t>(c));
  expected.set('z');
  EXPECT_EQ(*vocabulary->bytes_below(0), expected);
  EXPECT_EQ(vocabulary->bytes_below(1), nullptr);  // "xa": one node below
  EXPECT_EQ(vocabulary->tokens_below(0).size(), 20);
  EXPECT_THAT(vocabulary->tokens_below(1), ElementsAre(2));
}

TEST(GuideVocabularyTest, LongestPrefix) {
  const auto vocabulary = GuideVocabulary::Make({"a", "abc", "b", "</s>"}, {3}).value();
  EXPECT_EQ(vocabulary->LongestPrefix("abcd"), 1);
  EXPECT_EQ(vocabulary->LongestPrefix("abd"), 0);
  EXPECT_EQ(vocabulary->LongestPrefix("bbb"), 2);
  EXPECT_EQ(vocabulary->LongestPrefix("c"), -1);
  EXPECT_EQ(vocabulary->LongestPrefix("<"), -1);  // EOS is no text
}

TEST(GuideVocabularyTest, RefusesAVocabularyWithoutAnEnd) {
  const auto code = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(GuideVocabulary::Make({"a"}, {}).status().code(), code);
  EXPECT_THAT(GuideVocabulary::Make({"a"}, {1}).status().message(), HasSubstr("EOS id 1"));
  EXPECT_EQ(GuideVocabulary::Make({std::string(65536, 'a'), ""}, {1}).status().code(), code);
}

}  // namespace
}  // namespace quire
