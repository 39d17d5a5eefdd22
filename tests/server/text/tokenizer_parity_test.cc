// Equality with the `tokenizers` package on 20,000 strings per tokenizer: ids, byte offsets and
// decoded text, compared with hashes that make_tokenizers.py recorded.
// Covers server/text/nfc.cc
#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/text/tokenizer.h"
#include "tests/server/text/string_recipe.h"

namespace quire {
namespace {

constexpr int kStrings = 20000;
constexpr char kDirectory[] = QUIRE_SOURCE_DIR "/tests/testdata/tokenizers/";

class Hash {
 public:
  void Add(uint64_t value) { state_ = (state_ ^ value) * 0x100000001B3u; }
  void Add(const std::string& bytes) {
    for (const char byte : bytes) Add(static_cast<uint8_t>(byte));
  }
  uint32_t value() const { return static_cast<uint32_t>(state_ ^ state_ >> 32); }

 private:
  uint64_t state_ = 0xCBF29CE484222325u;
};

std::vector<uint32_t> ReadExpected(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<uint32_t> out;
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    uint32_t value = 0;
    for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
    out.push_back(value);
  }
  return out;
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char byte : text) {
    char cell[8];
    const bool plain = byte >= 0x20 && byte < 0x7F && byte != '\\';
    snprintf(cell, sizeof cell, plain ? "%c" : "\\x%02X", static_cast<uint8_t>(byte));
    out += cell;
  }
  return out;
}

class TokenizerParityTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerParityTest, EqualsThePackage) {
  const std::string path = kDirectory + std::string(GetParam());
  auto tokenizer = Tokenizer::Load(path + ".json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::vector<uint32_t> expected = ReadExpected(path + ".expected");
  ASSERT_EQ(expected.size(), 2 * kStrings);

  const StringRecipe recipe = StringRecipe::Read();
  RecipeRandom random(2026);
  int wrong = 0;
  for (int index = 0; index < kStrings && wrong < 10; ++index) {
    const std::string text = recipe.Make(&random);
    std::vector<int32_t> ids;
    std::vector<TokenOffset> offsets;
    const bool add_special = index & 1, parse_special = index & 2, skip_special = index & 4;
    const absl::Status status =
        (*tokenizer)->Encode(text, add_special, parse_special, &ids, &offsets);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(ids.size(), offsets.size());

    Hash id_hash, rest;
    for (const int32_t id : ids) id_hash.Add(static_cast<uint32_t>(id));
    for (const TokenOffset& offset : offsets) {
      rest.Add(static_cast<uint32_t>(offset.begin));
      rest.Add(static_cast<uint32_t>(offset.end));
    }
    rest.Add((*tokenizer)->Decode(ids, skip_special));
    std::ranges::reverse(ids);
    rest.Add((*tokenizer)->Decode(ids, skip_special));
    if (id_hash.value() == expected[2 * index] && rest.value() == expected[2 * index + 1]) continue;
    ++wrong;
    std::ranges::reverse(ids);
    std::string shown;
    for (size_t i = 0; i < ids.size(); ++i) {
      shown += " " + std::to_string(ids[i]) + "@" + std::to_string(offsets[i].begin) + "-" +
               std::to_string(offsets[i].end);
    }
    ADD_FAILURE() << "string " << index << ": "
                  << (id_hash.value() == expected[2 * index] ? "offsets or text" : "ids")
                  << " differ for \"" << Escaped(text) << "\", ours:" << shown;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, TokenizerParityTest,
                         ::testing::Values("gpt2", "llama3", "qwen2", "prefixed", "digits",
                                           "cased"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace quire
