// Outputs of random tokens, kept and read again from each token, beside the row of tokens itself.
#include "server/detach/kept_output.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace quire {
namespace {

// One token's output, with parts of random lengths.
OutputDelta RandomToken(std::mt19937& random, uint32_t number) {
  const auto text = [&](char letter) { return std::string(random() % 4, letter); };
  OutputDelta token;
  token.tokens = 1;
  token.token_ids = {number};
  token.logprobs = {-static_cast<float>(number)};
  token.scores = {number, number + 1, number + 2};
  token.text = text('a') + text('b');
  token.reasoning = text('r');
  if (random() % 3 == 0) {
    const uint32_t call = number / 5;
    token.calls.push_back({.index = call, .id = "i", .name = "", .arguments = text('x')});
    if (random() % 2 == 0) {
      token.calls.push_back({.index = call + 1, .id = "", .name = "n", .arguments = text('y')});
    }
  }
  return token;
}

OutputDelta Joined(const std::vector<OutputDelta>& tokens, size_t from, size_t to) {
  OutputDelta all;
  for (size_t i = from; i < to; ++i) {
    OutputDelta token = tokens[i];
    all.Append(token);
  }
  return all;
}

std::string CallsOf(const OutputDelta& delta) {
  std::string text;
  for (const ToolCallPart& call : delta.calls) {
    text += std::to_string(call.index) + call.id + call.name + call.arguments + ";";
  }
  return text;
}

void ExpectEqual(const OutputDelta& is, const OutputDelta& wanted) {
  EXPECT_EQ(is.token_ids, wanted.token_ids);
  EXPECT_EQ(is.logprobs, wanted.logprobs);
  EXPECT_EQ(is.scores, wanted.scores);
  EXPECT_EQ(is.text, wanted.text);
  EXPECT_EQ(is.reasoning, wanted.reasoning);
  EXPECT_EQ(CallsOf(is), CallsOf(wanted));
  EXPECT_EQ(is.tokens, wanted.tokens);
}

TEST(KeptOutputTest, GivesWhatComesBehindEachToken) {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    KeptOutput kept;
    std::vector<OutputDelta> tokens;
    uint32_t forgotten = 0;
    for (uint32_t i = 0; i < 60; ++i) {
      tokens.push_back(RandomToken(random, i));
      OutputDelta token = tokens.back();
      kept.Add(token);
      EXPECT_EQ(token.tokens, 0u);
      if (random() % 8 == 0) {
        forgotten += random() % (kept.end() - forgotten);
        kept.ForgetTo(forgotten);
      }
      ASSERT_EQ(kept.begin(), forgotten);
      ASSERT_EQ(kept.end(), tokens.size());
      for (uint32_t from = kept.begin(); from <= kept.end(); ++from) {
        const auto to = from + static_cast<uint32_t>(random() % (kept.end() - from + 1));
        OutputDelta out;
        kept.Copy(from, to, 1 << 20, false, &out);
        ExpectEqual(out, Joined(tokens, from, to));
        EXPECT_EQ(out.cumulative, to);
      }
    }
  }
}

TEST(KeptOutputTest, TextOfNoTokenBelongsToTheLastOne) {
  KeptOutput kept;
  OutputDelta token = {.token_ids = {1}, .text = "a", .tokens = 1};
  kept.Add(token);
  OutputDelta rest = {.text = "b", .reasoning = "r"};
  kept.Add(rest);
  EXPECT_EQ(kept.end(), 1u);
  OutputDelta out;
  kept.Copy(0, 1, 1 << 20, false, &out);
  EXPECT_EQ(out.text, "ab");
  EXPECT_EQ(out.reasoning, "r");
  OutputDelta behind;
  kept.Copy(1, 1, 1 << 20, false, &behind);
  EXPECT_FALSE(behind.has_text());
}

TEST(KeptOutputTest, CopiesInPiecesOfAtLeastOneToken) {
  KeptOutput kept;
  for (uint32_t i = 0; i < 10; ++i) {
    OutputDelta token = {.token_ids = {i}, .text = std::string(100, 'a'), .tokens = 1};
    kept.Add(token);
  }
  const int64_t each = kept.bytes() / 10;
  OutputDelta one;
  kept.Copy(2, 10, 1, false, &one);
  EXPECT_EQ(one.tokens, 1u);
  OutputDelta three;
  kept.Copy(2, 10, 3 * each, false, &three);
  EXPECT_EQ(three.tokens, 3u);
  EXPECT_EQ(three.cumulative, 5u);
  EXPECT_EQ(kept.BytesFrom(7), 3 * each);
}

TEST(KeptOutputTest, ForgetsAllButTheLastTokenAndItsBytes) {
  KeptOutput kept;
  EXPECT_EQ(kept.bytes(), 0);
  kept.ForgetTo(5);
  EXPECT_EQ(kept.begin(), 0u);
  for (uint32_t i = 0; i < 4; ++i) {
    OutputDelta token = {.token_ids = {i}, .text = "four", .tokens = 1};
    if (i == 0) token.prompt_scores = {1, 2, 3};
    kept.Add(token);
  }
  const int64_t all = kept.bytes();
  kept.ForgetTo(9);
  EXPECT_EQ(kept.begin(), 3u);
  EXPECT_EQ(kept.bytes(), (all - 12) / 4 + 12);
  OutputDelta out;
  kept.Copy(3, 4, 1 << 20, true, &out);
  EXPECT_EQ(out.text, "four");
  EXPECT_EQ(out.prompt_scores, (std::vector<uint32_t>{1, 2, 3}));
}

}  // namespace
}  // namespace quire
