// CharPairs compared with the definition of byte-pair merging on whole texts, for random
// vocabularies of several scripts: cutting texts into words and keeping the words' ids must change
// nothing.
// Covers server/text/model/word_breaks.cc, server/text/model/word_cache.cc
#include "server/text/model/char_pairs.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

// The last four have no token.
const std::vector<std::string> kAlphabet = {"a",      "b",      "(",      "1",      "\n",
                                            "\u2581", "\u00e9", "\u4e16", "\u754c", "\U0001F600",
                                            "\u0416", "z",      "?",      "\u6c34", "\U0001F601"};
constexpr size_t kUnknownChars = 4;

struct Vocabulary {
  std::vector<std::string> tokens = {"<unk>"};
  std::vector<MergeTable::Merge> merges;
  bool byte_fallback = false, fuse = false, has_unknown = true;

  int32_t IdOf(const std::string& token) const {
    const auto at = std::ranges::find(tokens, token);
    return at == tokens.end() ? -1 : static_cast<int32_t>(at - tokens.begin());
  }
  std::unique_ptr<const CharPairs> Make() const {
    CharPairs::Parts parts = {.tokens = {tokens.begin(), tokens.end()},
                              .merges = merges,
                              .fuse_unknown = fuse,
                              .byte_fallback = byte_fallback};
    if (has_unknown) parts.unknown = 0;
    auto made = CharPairs::Make(std::move(parts));
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
};

Vocabulary RandomVocabulary(std::mt19937* random) {
  Vocabulary out;
  out.has_unknown = (*random)() % 4 != 0;
  out.fuse = (*random)() % 2 != 0;
  out.byte_fallback = (*random)() % 2 != 0;
  // Without the token of one byte, characters that have it are unknown.
  const unsigned left_out = (*random)() % 2 != 0 ? 0x81 : 0x100;
  for (unsigned byte = 0; out.byte_fallback && byte < 256; ++byte) {
    if (byte != left_out) out.tokens.push_back(absl::StrFormat("<0x%02X>", byte));
  }
  std::vector<std::string> parts(kAlphabet.begin(), kAlphabet.end() - kUnknownChars);
  out.tokens.insert(out.tokens.end(), parts.begin(), parts.end());
  for (unsigned n = 1 + (*random)() % 40; n > 0; --n) {
    const std::string left = parts[(*random)() % parts.size()];
    const std::string right = parts[(*random)() % parts.size()];
    if (left.size() + right.size() > 30) continue;
    parts.push_back(left + right);
    if (out.IdOf(left + right) < 0) out.tokens.push_back(left + right);
    out.merges.push_back({out.IdOf(left), out.IdOf(right), out.IdOf(left + right),
                          static_cast<uint32_t>(out.merges.size())});
  }
  return out;
}

// The symbols of the whole text: unknown code points wait for the next known one, also behind
// bytes.
std::vector<int32_t> SymbolsOf(const Vocabulary& vocabulary, const std::string& text) {
  std::vector<int32_t> ids;
  size_t pending = 0;
  const auto add_pending = [&] {
    if (pending > 0) ids.push_back(0);
    pending = 0;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = CodePointEnd(text, at);
    const std::string one = text.substr(at, end - at);
    at = end;
    if (vocabulary.IdOf(one) >= 0) {
      add_pending();
      ids.push_back(vocabulary.IdOf(one));
      continue;
    }
    std::vector<int32_t> bytes;
    for (const char byte : one) {
      bytes.push_back(vocabulary.IdOf(absl::StrFormat("<0x%02X>", static_cast<uint8_t>(byte))));
    }
    if (std::ranges::find(bytes, -1) == bytes.end()) {
      ids.insert(ids.end(), bytes.begin(), bytes.end());
    } else if (vocabulary.has_unknown) {
      if (!vocabulary.fuse) add_pending();
      ++pending;
    }
  }
  add_pending();
  return ids;
}

std::vector<int32_t> Reference(const Vocabulary& vocabulary, const std::string& text) {
  std::map<std::pair<int32_t, int32_t>, size_t> ranks;
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    ranks[{vocabulary.merges[rank].left, vocabulary.merges[rank].right}] = rank;
  }
  std::vector<int32_t> ids = SymbolsOf(vocabulary, text);
  while (true) {
    size_t best = SIZE_MAX, at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto rank = ranks.find({ids[i], ids[i + 1]});
      if (rank != ranks.end() && rank->second < best) {
        best = rank->second;
        at = i;
      }
    }
    if (best == SIZE_MAX) return ids;
    ids[at] = vocabulary.merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

std::string RandomText(std::mt19937* random, size_t count) {
  std::string text;
  while (count > 0) {
    const size_t run = (*random)() % 3 == 0 ? 1 + (*random)() % 9 : 1;
    const std::string& unit = kAlphabet[(*random)() % kAlphabet.size()];
    for (size_t i = 0; i < std::min(run, count); ++i) text += unit;
    count -= std::min(run, count);
  }
  return text;
}

std::vector<int32_t> Encode(const CharPairs& pairs, const std::string& text,
                            std::vector<Span>* spans = nullptr) {
  std::vector<int32_t> ids;
  const Span whole[] = {{0, static_cast<uint32_t>(text.size())}};
  pairs.Encode(text, whole, &ids, spans);
  return ids;
}

TEST(CharPairsTest, EqualsTheDefinition) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    const Vocabulary vocabulary = RandomVocabulary(&random);
    const auto pairs = vocabulary.Make();
    for (const size_t size : {1, 2, 3, 4, 6, 9, 15, 40, 64, 65, 100, 200}) {
      const std::string text = RandomText(&random, size);
      const std::vector<int32_t> expected = Reference(vocabulary, text);
      ASSERT_EQ(Encode(*pairs, text), expected) << round << " " << text;
      // The second time from the cache.
      std::vector<Span> spans;
      ASSERT_EQ(Encode(*pairs, text, &spans), expected) << round << " " << text;
      ASSERT_EQ(spans.size(), expected.size());
    }
  }
}

TEST(CharPairsTest, SpansCoverATextWithoutUnknownCharacters) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    Vocabulary vocabulary = RandomVocabulary(&random);
    if (vocabulary.byte_fallback || !vocabulary.has_unknown) continue;
    const auto pairs = vocabulary.Make();
    const std::string text = RandomText(&random, 80);
    for (int again = 0; again < 2; ++again) {
      std::vector<Span> spans;
      Encode(*pairs, text, &spans);
      uint32_t end = 0;
      for (const Span& span : spans) {
        ASSERT_EQ(span.begin, end);
        end = span.end;
      }
      ASSERT_EQ(end, text.size());
    }
  }
}

TEST(CharPairsTest, TheUnknownTokenMayStandForAByte) {
  Vocabulary vocabulary;
  vocabulary.byte_fallback = true;
  vocabulary.tokens = {"<0xC3>", "<0xA9>", "a"};
  const auto pairs = vocabulary.Make();
  // A character of two bytes with tokens, one of two without, and one with a token.
  std::vector<Span> spans;
  EXPECT_EQ(Encode(*pairs, "\u00e9\u0416a", &spans), (std::vector<int32_t>{0, 1, 0, 2}));
  std::vector<std::pair<uint32_t, uint32_t>> bytes;
  for (const Span& span : spans) bytes.emplace_back(span.begin, span.end);
  EXPECT_THAT(bytes, testing::ElementsAre(testing::Pair(0, 1), testing::Pair(1, 2),
                                          testing::Pair(2, 4), testing::Pair(4, 5)));
}

// A model's words must not be found in the cache of another one, nor those of a model before it.
TEST(CharPairsTest, ModelsInTurnKeepTheirWords) {
  std::mt19937 random(6);
  const Vocabulary first = RandomVocabulary(&random), second = RandomVocabulary(&random);
  const auto one = first.Make(), two = second.Make();
  const auto both = [&](unsigned seed) {
    std::mt19937 own(seed);
    for (int i = 0; i < 200; ++i) {
      const std::string text = RandomText(&own, 12);
      ASSERT_EQ(Encode(*one, text), Reference(first, text)) << text;
      ASSERT_EQ(Encode(*two, text), Reference(second, text)) << text;
    }
  };
  std::thread other([&] { both(8); });
  both(7);
  other.join();
}

TEST(CharPairsTest, WordsThatShareAPlaceDisplaceEachOther) {
  Vocabulary vocabulary;
  vocabulary.tokens.insert(vocabulary.tokens.end(), kAlphabet.begin(), kAlphabet.end());
  const auto pairs = vocabulary.Make();
  std::mt19937 random(9);
  std::vector<std::string> texts;
  for (int i = 0; i < 60'000; ++i) texts.push_back(RandomText(&random, 1 + random() % 12));
  for (int again = 0; again < 2; ++again) {
    for (const std::string& text : texts) {
      ASSERT_EQ(Encode(*pairs, text), SymbolsOf(vocabulary, text)) << text;
    }
  }
}

}  // namespace
}  // namespace quire
