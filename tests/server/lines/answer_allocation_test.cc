// Memory of the results of lines, the same on every machine: an answer that is too long costs what
// the longest one costs, however long it is.
// Covers server/lines/openai_answer.cc, server/lines/request_line.cc
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "server/call/status_codec.h"
#include "server/lines/request_line.h"
#include "tests/allocations.h"

namespace quire {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;
constexpr uint32_t kTop = 20;

std::string ResultWith(int num_scores) {
  v1::GenerateResult result;
  for (int i = 0; i < num_scores; ++i) {
    v1::TokenScore& score = *result.add_scores();
    score.set_token_id(kTop);
    score.set_logprob(-0.1f);
    for (uint32_t id = 0; id < kTop; ++id) {
      score.add_top_ids(id);
      score.add_top_logprobs(-0.1f);
    }
  }
  return result.SerializeAsString();
}

class AnswerAllocationTest : public ::testing::TestWithParam<OpenAiCall> {
 protected:
  AnswerAllocationTest() {
    auto loaded = Tokenizer::Load(QUIRE_SOURCE_DIR "/tests/testdata/tokenizers/gpt2.json");
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    tokenizer_ = *std::move(loaded);
  }
  LineResult Write(const std::string& result) {
    return WriteLineResult({.number = 1, .custom_id = "a", .openai = GetParam()}, result,
                           tokenizer_.get(), kMaxBytes);
  }
  // Of writing a result beyond those of reading it.
  int64_t OfWriting(const std::string& result) {
    const int64_t reading = AllocationsOf([&result] {
                              v1::GenerateResult message;
                              message.ParseFromString(result);
                            }).num;
    return AllocationsOf([&] { Write(result); }).num - reading;
  }

 private:
  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_P(AnswerAllocationTest, AnAnswerThatIsTooLongIsNotBuilt) {
  int fits = 1;
  while (Write(ResultWith(2 * fits)).status.ok()) fits *= 2;
  const std::string longest = ResultWith(fits), far_too_long = ResultWith(64 * fits);
  EXPECT_EQ(ReasonOf(Write(far_too_long).status), "REPLY_TOO_LARGE");
  // The longest one may be as short as half of the limit.
  EXPECT_LT(OfWriting(far_too_long), 5 * OfWriting(longest));
}

INSTANTIATE_TEST_SUITE_P(Calls, AnswerAllocationTest,
                         ::testing::Values(OpenAiCall::kChat, OpenAiCall::kCompletion));

}  // namespace
}  // namespace quire
