// Allocations of the text path, the same on every machine: none for a detokenised token, and none
// for each piece of an encoded text.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "server/text/detokenizer.h"
#include "server/text/tokenizer.h"
#include "tests/allocations.h"

namespace quire {
namespace {

const Tokenizer& Gpt2() {
  static const auto tokenizer =
      Tokenizer::Load(QUIRE_SOURCE_DIR "/tests/testdata/tokenizers/gpt2.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return **tokenizer;
}

// English words, digits and a letter of two bytes.
std::string Text(int repeats) {
  std::string text;
  for (int i = 0; i < repeats; ++i) text += "The fox ate 12 naïve apples, didn't it? ";
  return text;
}

std::vector<int32_t> Encoded(const std::string& text) {
  std::vector<int32_t> ids;
  EXPECT_TRUE(Gpt2().Encode(text, false, false, &ids).ok());
  return ids;
}

int64_t OfDetokenizing(std::vector<std::string> stop) {
  const std::vector<int32_t> ids = Encoded(Text(200));
  Detokenizer detokenizer(&Gpt2(), {.stop = std::move(stop)});
  std::string out;
  out.reserve(1 << 20);
  for (int i = 0; i < 100; ++i) detokenizer.Push(ids[static_cast<size_t>(i)], &out);  // warm
  const auto detokenize = [&] {
    for (const int32_t id : ids) detokenizer.Push(id, &out);
  };
  return AllocationsOf(detokenize).num;
}

TEST(TextAllocationTest, DetokenizingATokenAllocatesNothing) {
  EXPECT_EQ(OfDetokenizing({}), 0);
  EXPECT_EQ(OfDetokenizing({"apples, did not", "zebra"}), 0);
}

// The buffers of a call double as they grow: a text ten times as long takes a few allocations more,
// where one for each of its pieces would be 9,000 more.
TEST(TextAllocationTest, EncodingAPieceAllocatesNothing) {
  const std::string small = Text(100), large = Text(1000);
  std::vector<int32_t> ids;
  ids.reserve(1 << 20);
  const auto encode = [&](const std::string& text) {
    ids.clear();
    return AllocationsOf([&] { ASSERT_TRUE(Gpt2().Encode(text, false, false, &ids).ok()); }).num;
  };
  encode(large);  // warm
  EXPECT_LT(encode(large), encode(small) + 10);
}

}  // namespace
}  // namespace quire
