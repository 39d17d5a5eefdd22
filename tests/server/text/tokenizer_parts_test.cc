// The parts of a tokenizer on their own: hostile lengths, streams of byte tokens, merges that share
// a rank, and what stays undefined in the other tests.
// Covers server/text/model/byte_tokens.cc, server/text/pieces/pattern_splitter.cc
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/added_tokens.h"
#include "server/text/decode/decode_stream.h"
#include "server/text/model/byte_tokens.h"
#include "server/text/model/char_pairs.h"
#include "server/text/model/unigram.h"
#include "server/text/tokenizer.h"

namespace quire {
namespace {

const Tokenizer& Llama() {
  static const auto tokenizer =
      Tokenizer::Load(QUIRE_SOURCE_DIR "/tests/testdata/families/llama2.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return **tokenizer;
}

std::vector<int32_t> ByteIds(std::string_view bytes) {
  std::vector<int32_t> ids;
  for (const char byte : bytes) {
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", static_cast<uint8_t>(byte));
    ids.push_back(Llama().IdOf(name).value());
  }
  return ids;
}

std::vector<std::string> Deltas(const std::vector<int32_t>& ids, DecodeStream::Options options) {
  DecodeStream stream(&Llama().texts(), options);
  std::vector<std::string> out;
  for (const int32_t id : ids) stream.Push(id, &out.emplace_back());
  stream.Finish(&out.emplace_back());
  return out;
}

using List = std::vector<std::string>;

TEST(ByteTokensTest, ReadsTheirNumber) {
  EXPECT_EQ(ByteOfToken("<0xE2>"), '\xE2');
  EXPECT_EQ(ByteOfToken("<0xe2>"), '\xE2');
  EXPECT_EQ(ByteOfToken("<0x+2>"), '\x02');
  for (const char* other : {"<0xG2>", "<0x2G>", "0xE2", "<0xE2", "<0xE2>>", "<0x-2>", ""}) {
    EXPECT_EQ(ByteOfToken(other), std::nullopt) << other;
  }
  EXPECT_TRUE(IsModelByte("<0xE2>"));
  EXPECT_FALSE(IsModelByte("<0xe2>"));
}

TEST(DecodeStreamTest, GivesACodePointWithItsLastByte) {
  EXPECT_EQ(Deltas(ByteIds("\xF0\x9F\x98\x80!"), {}),
            (List{"", "", "", "\xF0\x9F\x98\x80", "!", ""}));
}

TEST(DecodeStreamTest, ReplacesEachByteThatIsNoText) {
  const std::string replaced = "\xEF\xBF\xBD";
  std::vector<int32_t> ids = ByteIds("\xE4\xB8");
  ids.push_back(Llama().IdOf("a").value());
  EXPECT_EQ(Deltas(ids, {}), (List{"", "", replaced + replaced + "a", ""}));
  EXPECT_EQ(Deltas(ByteIds("\xE4\xB8"), {}), (List{"", "", replaced + replaced}));
  // A run with a whole code point before bytes that are no text: a stream keeps the code point, the
  // package replaces the run.
  EXPECT_EQ(Deltas(ByteIds("\xC3\xA9\xFF"), {}), (List{"", "\xC3\xA9", replaced, ""}));
  EXPECT_EQ(Deltas(ByteIds("\xC3\xA9\xFF"), {.whole_runs = true}),
            (List{"", "", "", replaced + replaced + replaced}));
}

TEST(DecodeStreamTest, KeepsTheSpaceOfAContinuation) {
  const std::vector<int32_t> ids = {Llama().IdOf("\xE2\x96\x81the").value()};
  EXPECT_EQ(Deltas(ids, {.at_start = true}), (List{"the", ""}));
  EXPECT_EQ(Deltas(ids, {.at_start = false}), (List{" the", ""}));
}

TEST(AddedTokenMatcherTest, FindsSingleWords) {
  AddedTokenMatcher matcher;
  matcher.Add({.id = 1, .content = "the", .single_word = true}, "the");
  const auto found = [&](const std::string& text) {
    int count = 0;
    for (const auto& part : matcher.Split(text, true)) count += part.id == 1;
    return count;
  };
  EXPECT_EQ(found("the"), 1);
  EXPECT_EQ(found("the the,the"), 3);
  EXPECT_EQ(found("them lathe _the the2 th\xC3\xA9the"), 0);
}

TEST(CharPairsTest, MergesOfOneRankGoFromLeftToRight) {
  // Both ways to "aaa" have its rank, so of "aaaaaa" after the merges to "aa" the leftmost wins.
  CharPairs::Parts parts;
  parts.tokens = {"a", "aa", "aaa"};
  parts.merges = {{0, 0, 1, 0}, {0, 1, 2, 1}, {1, 0, 2, 1}};
  const auto model = CharPairs::Make(parts).value();
  std::vector<int32_t> ids;
  const std::string text = "aaaaa";
  model->Encode(text, std::vector<Span>{{0, 5}}, &ids, nullptr);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 2}));  // aa aa a: the pair aa a is all that merges
}

TEST(CharPairsTest, RefusesMergesOfBytesAndTheUnknown) {
  CharPairs::Parts parts;
  parts.tokens = {"a", "<0x0A>", "a<0x0A>"};
  parts.byte_fallback = true;
  parts.merges = {{0, 1, 2, 0}};
  EXPECT_THAT(std::string(CharPairs::Make(parts).status().message()),
              ::testing::HasSubstr("the token of a byte, id 1"));
}

// Were the time of a long run quadratic, these would not end.
TEST(HostileTextTest, EndsSoon) {
  for (const char* name : {"llama2", "gemma", "mistral", "unknown", "t5", "xlnet", "falcon3"}) {
    const auto tokenizer =
        Tokenizer::Load(QUIRE_SOURCE_DIR "/tests/testdata/families/" + std::string(name) + ".json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (const std::string unit :
         {"a", " ", "\xE2\x96\x81", "the", "\xF0\x9F\x98\x80", "a\xCC\x81", "\n", "7", "<", "'"}) {
      std::string text;
      while (text.size() < 1 << 20) text += unit;
      std::vector<int32_t> ids;
      std::vector<TokenOffset> offsets;
      ASSERT_TRUE((*tokenizer)->Encode(text, true, true, &ids, &offsets).ok()) << name;
      EXPECT_EQ(ids.size(), offsets.size());
    }
  }
}

}  // namespace
}  // namespace quire
