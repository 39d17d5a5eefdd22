// Equality with the `tokenizers` package on 20,000 strings per tokenizer: ids, byte offsets and
// decoded text, compared with hashes that the scripts of this directory recorded.
// Covers server/text/normalize/unicode_form.cc, server/text/normalize/normalized_text.cc,
// server/text/normalize/simple_normalizers.cc, server/text/normalize/precompiled.cc,
// server/text/pieces/space_rewriter.cc, server/text/decode/token_texts.cc,
// server/text/unicode/char_sets.cc, server/text/unicode/char_set_tables.cc,
// server/text/pattern/pattern.cc
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/text/detokenizer.h"
#include "server/text/tokenizer.h"
#include "tests/server/text/expected_hashes.h"
#include "tests/server/text/string_recipe.h"

namespace quire {
namespace {

constexpr char kDirectory[] = QUIRE_SOURCE_DIR "/tests/testdata/";

// The answer of a tokenizer for string number `index`, whose bits choose the options.
struct Answer {
  std::vector<int32_t> ids;
  std::vector<TokenOffset> offsets;

  std::string Shown() const {
    std::string out;
    for (size_t i = 0; i < ids.size(); ++i) {
      out += " " + std::to_string(ids[i]) + "@" + std::to_string(offsets[i].begin) + "-" +
             std::to_string(offsets[i].end);
    }
    return out;
  }
};

// Two hashes, of ids and of offsets and decoded texts, as make_tokenizers.py takes them.
struct Hashes {
  ExpectedHash ids, rest;

  Answer Add(const Tokenizer& tokenizer, int index, const std::string& text) {
    Answer answer;
    const bool add_special = index & 1, parse_special = index & 2, skip_special = index & 4;
    const absl::Status status =
        tokenizer.Encode(text, add_special, parse_special, &answer.ids, &answer.offsets);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(answer.ids.size(), answer.offsets.size());
    for (const int32_t id : answer.ids) ids.Add(static_cast<uint32_t>(id));
    for (const TokenOffset& offset : answer.offsets) {
      rest.Add(static_cast<uint32_t>(offset.begin));
      rest.Add(static_cast<uint32_t>(offset.end));
    }
    const std::string decoded = tokenizer.Decode(answer.ids, skip_special);
    rest.Add(decoded);
    std::vector<int32_t> reversed(answer.ids.rbegin(), answer.ids.rend());
    rest.Add(tokenizer.Decode(reversed, skip_special));

    // Only where runs of bytes are invalid may a stream give other text.
    Detokenizer stream(&tokenizer, {.skip_special = skip_special, .continues = false});
    std::string streamed;
    for (const int32_t id : answer.ids) stream.Push(id, &streamed);
    stream.Flush(&streamed);
    if (decoded.find("\xEF\xBF\xBD") == std::string::npos) {
      EXPECT_EQ(streamed, decoded) << Escaped(text);
    }
    return answer;
  }
};

std::unique_ptr<const Tokenizer> Load(const std::string& path) {
  auto tokenizer = Tokenizer::Load(path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

class TokenizerParityTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerParityTest, EqualsThePackage) {
  const std::string path = kDirectory + std::string("tokenizers/") + GetParam();
  const auto tokenizer = Load(path + ".json");
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<uint32_t> expected = ReadExpected(path + ".expected");
  ASSERT_EQ(expected.size(), 2 * kStrings);

  const StringRecipe recipe = StringRecipe::Read();
  RecipeRandom random(2026);
  int wrong = 0;
  for (int index = 0; index < kStrings && wrong < 10; ++index) {
    const std::string text = recipe.Make(&random);
    Hashes hashes;
    const Answer answer = hashes.Add(*tokenizer, index, text);
    const bool ids_equal = hashes.ids.value() == expected[2 * index];
    if (ids_equal && hashes.rest.value() == expected[2 * index + 1]) continue;
    ++wrong;
    ADD_FAILURE() << "string " << index << ": " << (ids_equal ? "offsets or text" : "ids")
                  << " differ for \"" << Escaped(text) << "\", ours:" << answer.Shown();
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, TokenizerParityTest,
                         ::testing::Values("gpt2", "llama3", "qwen2", "prefixed", "digits",
                                           "cased"),
                         [](const auto& info) { return std::string(info.param); });

// The shapes of published families, with two hashes for each block of strings.
class FamilyParityTest : public ::testing::TestWithParam<const char*> {};

TEST_P(FamilyParityTest, EqualsThePackage) {
  const std::string path = kDirectory + std::string("families/") + GetParam();
  const auto tokenizer = Load(path + ".json");
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<uint32_t> expected = ReadExpected(path + ".expected");
  ASSERT_EQ(expected.size(), 2 * kStrings / kBlock);
  // Behind a byte without a token the package's offsets are of other characters.
  const bool ids_only = GetParam() == std::string_view("smollm");

  const StringRecipe recipe = StringRecipe::Read("families/recipe.json");
  RecipeRandom random(2026);
  int wrong = 0;
  for (int block = 0; block < kStrings / kBlock && wrong < 3; ++block) {
    Hashes hashes;
    std::string shown;
    for (int i = 0; i < kBlock; ++i) {
      const int index = block * kBlock + i;
      const std::string text = recipe.Make(&random);
      const Answer answer = hashes.Add(*tokenizer, index, text);
      shown += "\n  " + std::to_string(index) + " \"" + Escaped(text) + "\":" + answer.Shown();
    }
    const bool ids_equal = hashes.ids.value() == expected[2 * block];
    const bool rest_equal = ids_only || hashes.rest.value() == expected[2 * block + 1];
    if (ids_equal && rest_equal) continue;
    ++wrong;
    ADD_FAILURE() << (ids_equal ? "offsets or text" : "ids") << " of one of these differ:" << shown;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, FamilyParityTest,
                         ::testing::Values("llama2", "gemma", "mistral", "phi3", "deepseek",
                                           "command_r", "falcon3", "roberta", "unknown", "t5",
                                           "xlnet", "deepseek_coder", "words_of_lines",
                                           "byte_normalized", "smollm", "unknown_bytes"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace quire
