// Detokenizer: whole code points, no leaked stop strings, and equality with a naive cut of the
// whole text over random streams.
#include "server/text/detokenizer.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

const Tokenizer& Gpt2() {
  static const auto tokenizer =
      Tokenizer::Load(QUIRE_SOURCE_DIR "/tests/testdata/tokenizers/gpt2.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return **tokenizer;
}

// One token per byte, so that tests choose where tokens end.
std::vector<int32_t> ByteTokens(std::string_view text) {
  static const std::vector<int32_t> id_of_byte = [] {
    std::vector<int32_t> ids(256, -1);
    for (int32_t id = 0; id < Gpt2().size(); ++id) {
      const std::string_view bytes = Gpt2().TokenBytes(id);
      if (bytes.size() == 1) ids[static_cast<uint8_t>(bytes[0])] = id;
    }
    return ids;
  }();
  std::vector<int32_t> out;
  for (const char byte : text) out.push_back(id_of_byte[static_cast<uint8_t>(byte)]);
  return out;
}

struct Streamed {
  std::vector<std::string> deltas;  // per token, then one for the flush
  std::string text;
  int stop = -1;
};

Streamed Stream(const std::vector<int32_t>& tokens, Detokenizer::Options options) {
  Detokenizer detokenizer(&Gpt2(), std::move(options));
  Streamed out;
  bool stopped = false;
  for (const int32_t token : tokens) {
    std::string delta;
    const bool now = detokenizer.Push(token, &delta);
    EXPECT_TRUE(now || !stopped);
    EXPECT_TRUE(!stopped || delta.empty()) << "text after a stop";
    stopped = now;
    out.deltas.push_back(delta);
  }
  std::string delta;
  detokenizer.Flush(&delta);
  out.deltas.push_back(delta);
  for (const std::string& one : out.deltas) {
    EXPECT_EQ(FindInvalidUtf8(one), std::string::npos) << "part of a code point in a delta";
    out.text += one;
  }
  out.stop = detokenizer.matched_stop();
  return out;
}

// The specification: the whole text, cut where the first stop string ends.
Streamed Naive(const std::vector<int32_t>& tokens, const Detokenizer::Options& options) {
  const std::string text = Gpt2().Decode(tokens, options.skip_special);
  for (size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    for (size_t i = 0; i < options.stop.size(); ++i) {
      const std::string& stop = options.stop[i];
      if (!std::string_view(text).substr(0, end).ends_with(stop)) continue;
      if (best < 0 || stop.size() > options.stop[best].size()) best = static_cast<int>(i);
    }
    if (best < 0) continue;
    const size_t keep = options.include_stop ? end : end - options.stop[best].size();
    return {{}, text.substr(0, keep), best};
  }
  return {{}, text, -1};
}

TEST(DetokenizerTest, EmitsTextAtOnce) {
  const Streamed streamed = Stream(ByteTokens("abc"), {});
  EXPECT_EQ(streamed.deltas, (std::vector<std::string>{"a", "b", "c", ""}));
}

TEST(DetokenizerTest, WaitsForWholeCodePoints) {
  const Streamed streamed = Stream(ByteTokens("\xF0\x9F\x98\x80!"), {});
  EXPECT_EQ(streamed.deltas, (std::vector<std::string>{"", "", "", "\xF0\x9F\x98\x80", "!", ""}));
}

TEST(DetokenizerTest, ReplacesIncompleteCodePoints) {
  EXPECT_EQ(Stream(ByteTokens("a\xF0\x9F\x98"), {}).text, "a\xEF\xBF\xBD");
  EXPECT_EQ(Stream(ByteTokens("\xE2\x82"
                              "a"),
                   {})
                .text,
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(Stream(ByteTokens("\xC0\x80"), {}).text, "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(DetokenizerTest, HoldsBackPossibleStops) {
  const Streamed streamed = Stream(ByteTokens("one END"), {.stop = {"END"}});
  EXPECT_EQ(streamed.deltas, (std::vector<std::string>{"o", "n", "e", " ", "", "", "", ""}));
  EXPECT_EQ(streamed.stop, 0);
}

TEST(DetokenizerTest, ReleasesTextThatIsNoStop) {
  const Streamed streamed = Stream(ByteTokens("ENENx"), {.stop = {"END"}});
  EXPECT_EQ(streamed.deltas, (std::vector<std::string>{"", "", "EN", "", "ENx", ""}));
  EXPECT_EQ(streamed.stop, -1);
  EXPECT_EQ(Stream(ByteTokens("EN"), {.stop = {"END"}}).text, "EN");
}

TEST(DetokenizerTest, KeepsTheStopOnRequest) {
  EXPECT_EQ(Stream(ByteTokens("a.b"), {.stop = {"."}, .include_stop = true}).text, "a.");
  EXPECT_EQ(Stream(ByteTokens("a.b"), {.stop = {"."}}).text, "a");
}

TEST(DetokenizerTest, TheStopThatEndsFirstWinsThenTheLongest) {
  EXPECT_EQ(Stream(ByteTokens("xabcd"), {.stop = {"abcd", "bc"}}).stop, 1);
  EXPECT_EQ(Stream(ByteTokens("xabcd"), {.stop = {"abcd", "bc"}}).text, "xa");
  EXPECT_EQ(Stream(ByteTokens("xabc"), {.stop = {"c", "abc", "bc"}}).stop, 1);
  EXPECT_EQ(Stream(ByteTokens("xabc"), {.stop = {"c", "abc", "bc"}}).text, "x");
}

TEST(DetokenizerTest, FindsAStopWithinOneToken) {
  std::vector<int32_t> ids;
  ASSERT_TRUE(Gpt2().Encode(" people", false, false, &ids).ok());
  ASSERT_EQ(ids.size(), 1u);
  EXPECT_EQ(Stream(ids, {.stop = {"op"}}).text, " pe");
}

TEST(DetokenizerTest, SkipsSpecialTokensOnRequest) {
  const int32_t end = Gpt2().IdOf("<|endoftext|>").value();
  std::vector<int32_t> ids = ByteTokens("ab");
  ids.insert(ids.begin() + 1, end);
  EXPECT_EQ(Stream(ids, {}).text, "ab");
  EXPECT_EQ(Stream(ids, {.skip_special = false}).text, "a<|endoftext|>b");
  // A stop string matches across a skipped token.
  EXPECT_EQ(Stream(ids, {.stop = {"ab"}}).stop, 0);
}

TEST(DetokenizerTest, ShowsSpecialTokensThatAreAskedFor) {
  const int32_t end = *Gpt2().IdOf("<|endoftext|>");
  std::vector<int32_t> tokens = ByteTokens("ab");
  tokens.insert(tokens.begin() + 1, end);
  EXPECT_EQ(Stream(tokens, {}).text, "ab");
  EXPECT_EQ(Stream(tokens, {.shown = {7, end}}).text, "a<|endoftext|>b");
}

TEST(DetokenizerTest, IgnoresIdsWithoutAToken) {
  EXPECT_EQ(Stream({-1, 1 << 20, ByteTokens("a")[0]}, {}).text, "a");
}

TEST(DetokenizerTest, FindsStopsThatOverlapThemselves) {
  // Falling back from "aabaaab" to a shorter match takes more than one step.
  EXPECT_EQ(Stream(ByteTokens("aabaaabaabaaab!"), {.stop = {"aabaabaaa", "aabaabaaab"}}).stop, 0);
  std::mt19937 random(8);
  const auto letters = [&random](size_t size) {
    std::string out;
    while (out.size() < size) out += random() % 3 == 0 ? 'b' : 'a';
    return out;
  };
  for (int round = 0; round < 20000; ++round) {
    const Detokenizer::Options options{
        .stop = {letters(1 + random() % 9), letters(2 + random() % 9)}};
    const std::vector<int32_t> tokens = ByteTokens(letters(30));
    const Streamed expected = Naive(tokens, options), streamed = Stream(tokens, options);
    ASSERT_EQ(streamed.text, expected.text) << options.stop[0] << " " << options.stop[1];
    ASSERT_EQ(streamed.stop, expected.stop);
  }
}

TEST(DetokenizerTest, EqualsTheNaiveCutOnRandomStreams) {
  std::mt19937 random(7);
  const std::vector<std::string> alphabet = {"a",    "b",    "ab",   "\xC3\xA9", "\xF0\x9F\x98\x80",
                                             "\xE2", "\x82", "\xAC", "\xF0\x9F", " the",
                                             "\n"};
  int stops_hit = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes;
    for (unsigned n = random() % 30; n > 0; --n) bytes += alphabet[random() % alphabet.size()];
    // Random bytes and, for longer streams, the tokens of repaired text.
    std::vector<int32_t> tokens = ByteTokens(bytes);
    if (round % 2 != 0) {
      const std::string text = Gpt2().Decode(tokens, true);
      tokens.clear();
      ASSERT_TRUE(Gpt2().Encode(text, false, false, &tokens).ok());
    }
    Detokenizer::Options options{.include_stop = random() % 2 != 0};
    const std::vector<std::string> pieces = {
        "a", "b", "ab", "\xC3\xA9", "\xF0\x9F\x98\x80", "\xEF\xBF\xBD", " the", "\n", "e"};
    for (unsigned n = random() % 4; n > 0; --n) {
      std::string stop;
      for (unsigned k = 1 + random() % 4; k > 0; --k) stop += pieces[random() % pieces.size()];
      options.stop.push_back(stop);
    }
    const Streamed expected = Naive(tokens, options);
    const Streamed streamed = Stream(tokens, options);
    ASSERT_EQ(streamed.text, expected.text) << "round " << round;
    ASSERT_EQ(streamed.stop, expected.stop) << "round " << round;
    stops_hit += expected.stop >= 0;
  }
  EXPECT_GT(stops_hit, 1000);
}

}  // namespace
}  // namespace quire
