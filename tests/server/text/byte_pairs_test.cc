// BytePairs compared with the definition of byte-pair merging, on random vocabularies and pieces of
// any length.
// Covers server/text/model/merge_table.cc, server/text/model/piece_table.cc
#include "server/text/model/byte_pairs.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<MergeTable::Merge> merges;

  BytePairs Make(bool ignore_merges = false) const {
    return BytePairs({tokens.begin(), tokens.end()}, merges, {.ignore_merges = ignore_merges});
  }
};

Vocabulary BytesOnly() {
  Vocabulary out;
  // Ids differ from the bytes, so that confusing them fails the test.
  for (int byte = 255; byte >= 0; --byte) out.tokens.emplace_back(1, static_cast<char>(byte));
  return out;
}

int32_t IdOf(const Vocabulary& vocabulary, const std::string& token) {
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.tokens[id] == token) return static_cast<int32_t>(id);
  }
  return -1;
}

void AddMerge(Vocabulary* vocabulary, const std::string& left, const std::string& right) {
  if (IdOf(*vocabulary, left + right) < 0) vocabulary->tokens.push_back(left + right);
  vocabulary->merges.push_back({IdOf(*vocabulary, left), IdOf(*vocabulary, right),
                                IdOf(*vocabulary, left + right),
                                static_cast<uint32_t>(vocabulary->merges.size())});
}

// The definition: while some pair has a rank, merge the first pair of the lowest rank.
std::vector<int32_t> Reference(const Vocabulary& vocabulary, const std::string& piece) {
  std::map<std::pair<int32_t, int32_t>, size_t> ranks;
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    ranks[{vocabulary.merges[rank].left, vocabulary.merges[rank].right}] = rank;
  }
  std::vector<int32_t> ids;
  for (const char byte : piece) ids.push_back(255 - static_cast<uint8_t>(byte));
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

std::vector<int32_t> Encode(const BytePairs& pairs, const std::string& piece) {
  std::vector<int32_t> ids;
  pairs.EncodePiece(piece, &ids);
  return ids;
}

// Merges of existing tokens in any order; a merge may use a token of a later rank.
Vocabulary RandomVocabulary(std::mt19937* random, int merges) {
  Vocabulary out = BytesOnly();
  std::vector<std::string> parts = {"a", "b", "c"};
  std::vector<std::pair<std::string, std::string>> order;
  for (int i = 0; i < merges; ++i) {
    const std::string left = parts[(*random)() % parts.size()];
    const std::string right = parts[(*random)() % parts.size()];
    if (left.size() + right.size() > 40) continue;
    order.emplace_back(left, right);
    parts.push_back(left + right);
  }
  if ((*random)() % 2 != 0) std::shuffle(order.begin(), order.end(), *random);
  for (const auto& part : parts) {
    if (IdOf(out, part) < 0) out.tokens.push_back(part);
  }
  for (const auto& [left, right] : order) AddMerge(&out, left, right);
  return out;
}

std::string RandomPiece(std::mt19937* random, size_t size) {
  std::string piece;
  while (piece.size() < size) {
    const size_t run = (*random)() % 3 == 0 ? 1 + (*random)() % 9 : 1;
    piece.append(run, static_cast<char>('a' + (*random)() % 3));
  }
  piece.resize(size);
  return piece;
}

TEST(BytePairsTest, EqualsTheDefinition) {
  std::mt19937 random(3);
  for (int round = 0; round < 150; ++round) {
    const Vocabulary vocabulary = RandomVocabulary(&random, 1 + static_cast<int>(random() % 30));
    const BytePairs pairs = vocabulary.Make();
    for (const size_t size : {1, 2, 3, 5, 8, 15, 16, 17, 40, 63, 64, 65, 66, 100, 300}) {
      const std::string piece = RandomPiece(&random, size);
      ASSERT_EQ(Encode(pairs, piece), Reference(vocabulary, piece)) << round << " " << piece;
    }
    for (const std::string& token : vocabulary.tokens) {
      ASSERT_EQ(Encode(pairs, token), Reference(vocabulary, token)) << round << " " << token;
    }
  }
}

TEST(BytePairsTest, EveryByteIsAToken) {
  const BytePairs pairs = BytesOnly().Make();
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(Encode(pairs, std::string(1, static_cast<char>(byte))),
              std::vector<int32_t>{255 - byte});
  }
}

TEST(BytePairsTest, MatchesWholePiecesOnlyIfMergesProduceThem) {
  Vocabulary vocabulary = BytesOnly();
  vocabulary.tokens.push_back("abc");  // no merge produces it
  const int32_t whole = IdOf(vocabulary, "abc");
  EXPECT_EQ(Encode(vocabulary.Make(), "abc"), (std::vector<int32_t>{158, 157, 156}));
  EXPECT_EQ(Encode(vocabulary.Make(/*ignore_merges=*/true), "abc"), std::vector<int32_t>{whole});
  EXPECT_EQ(Encode(vocabulary.Make(/*ignore_merges=*/true), "abcd").size(), 4u);
}

TEST(BytePairsTest, DistinguishesPiecesWithZeroBytes) {
  Vocabulary vocabulary = BytesOnly();
  const std::string zero(1, '\0');
  AddMerge(&vocabulary, "a", zero);
  AddMerge(&vocabulary, "a" + zero, zero);
  const BytePairs pairs = vocabulary.Make();
  EXPECT_EQ(Encode(pairs, "a"), std::vector<int32_t>{158});
  EXPECT_EQ(Encode(pairs, "a" + zero), std::vector<int32_t>{256});
  EXPECT_EQ(Encode(pairs, "a" + zero + zero), std::vector<int32_t>{257});
  EXPECT_EQ(Encode(pairs, zero + "a"), (std::vector<int32_t>{255, 158}));
}

TEST(BytePairsTest, OfTwoRanksTheLastCounts) {
  Vocabulary vocabulary = BytesOnly();
  AddMerge(&vocabulary, "a", "b");
  AddMerge(&vocabulary, "b", "c");
  AddMerge(&vocabulary, "a", "b");
  EXPECT_EQ(Encode(vocabulary.Make(), "abc"), (std::vector<int32_t>{158, IdOf(vocabulary, "bc")}));
}

TEST(BytePairsTest, MergesAMillionLetters) {
  Vocabulary vocabulary = BytesOnly();
  std::string power = "a";
  for (int i = 0; i < 5; ++i, power += power) AddMerge(&vocabulary, power, power);
  const std::vector<int32_t> ids = Encode(vocabulary.Make(), std::string((1 << 20) + 3, 'a'));
  ASSERT_EQ(ids.size(), (1u << 15) + 2);
  EXPECT_EQ(ids.front(), IdOf(vocabulary, power));
  EXPECT_EQ(ids.back(), IdOf(vocabulary, "a"));
}

}  // namespace
}  // namespace quire
