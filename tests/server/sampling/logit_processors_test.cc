// The file of --logit-processors: what its sets add to a request, and what is refused by place.
#include "server/sampling/logit_processors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "server/text/tokenizer.h"

namespace quire {

// For messages of tests.
void PrintTo(const LogitBias& bias, std::ostream* out) { *out << bias.token << ": " << bias.bias; }
bool operator==(const LogitBias& a, const LogitBias& b) {
  return a.token == b.token && a.bias == b.bias;
}

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class LogitProcessorsTest : public testing::Test {
 protected:
  absl::StatusOr<LogitProcessors> Load(const std::string& text, bool with_tokenizer = true) {
    const std::string path = testing::TempDir() + "/logit_processors_test.json";
    std::ofstream(path) << text;
    return LogitProcessors::Load(path, with_tokenizer ? tokenizer_.get() : nullptr,
                                 tokenizer_->size());
  }
  std::string Error(const std::string& text, bool with_tokenizer = true) {
    return std::string(Load(text, with_tokenizer).status().message());
  }
  int32_t Id(const std::string& token) { return tokenizer_->IdOf(token).value(); }

  const std::unique_ptr<const Tokenizer> tokenizer_ =
      *Tokenizer::Load(QUIRE_SOURCE_DIR "/models/demo/tokenizer.json");
};

TEST_F(LogitProcessorsTest, NoFileHasNone) {
  const auto none = LogitProcessors::Load("", nullptr, 100);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->names().empty());
  SamplingParams params;
  EXPECT_TRUE(none->AddTo({}, &params).ok());
  EXPECT_THAT(std::string(none->AddTo({"a"}, &params).message()),
              HasSubstr("none of the name 'a'; it has none (--logit-processors)"));
}

TEST_F(LogitProcessorsTest, TextsBecomeTokens) {
  // The demo model's vocabulary has a space as the first character of a word as "\u0120".
  const auto loaded = Load(R"({"polite": {
      "logit_bias": [{"text": " the", "bias": 1.5}, {"token": 7, "bias": -2}],
      "banned_token_ids": [3], "bad_words": ["was", [5, 6]]},
      "short": {"allowed_token_ids": [9, 8]}})");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->names(), ElementsAre("polite", "short"));
  SamplingParams params;
  ASSERT_TRUE(loaded->AddTo({"polite", "short"}, &params).ok());
  EXPECT_THAT(params.logit_bias, ElementsAre(LogitBias{7, -2}, LogitBias{Id("\u0120the"), 1.5}));
  EXPECT_THAT(params.allowed_token_ids, ElementsAre(9, 8));
  std::vector<int32_t> word;
  ASSERT_TRUE(tokenizer_->Encode("was", false, false, &word).ok());
  ASSERT_EQ(word.size(), 2u);  // of this vocabulary
  EXPECT_THAT(params.bad_words,
              testing::UnorderedElementsAre(~3, 5, ~6, word[0], ~word[1], ~Id("\u0120was")));
  EXPECT_EQ(params.bad_words[0], ~3);
}

TEST_F(LogitProcessorsTest, ListsJoinThoseOfTheRequest) {
  const auto loaded = Load(R"({"a": {"logit_bias": [{"token": 7, "bias": -2}],
      "allowed_token_ids": [1, 2, 3]}, "b": {"logit_bias": [{"token": 7, "bias": 0.5}],
      "allowed_token_ids": [3, 4], "banned_token_ids": [9]}, "c": {"allowed_token_ids": [50]}})");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  SamplingParams params;
  params.logit_bias = {{3, 1}, {7, 10}};
  params.bad_words = {4, ~5};
  ASSERT_TRUE(loaded->AddTo({"b", "a"}, &params).ok());
  EXPECT_THAT(params.logit_bias, ElementsAre(LogitBias{3, 1}, LogitBias{7, 8.5}));
  EXPECT_THAT(params.bad_words, ElementsAre(4, ~5, ~9));
  EXPECT_THAT(params.allowed_token_ids, ElementsAre(3));
  EXPECT_THAT(std::string(loaded->AddTo({"c"}, &params).message()), HasSubstr("allow no token"));
  EXPECT_THAT(std::string(loaded->AddTo({"a", "a"}, &params).message()),
              HasSubstr("names 'a' twice"));
  EXPECT_THAT(std::string(loaded->AddTo({"d"}, &params).message()), HasSubstr("it has a, b, c"));
  EXPECT_THAT(std::string(loaded->AddTo(std::vector<std::string>(9, "a"), &params).message()),
              HasSubstr("has 9 names; at most 8"));
}

TEST_F(LogitProcessorsTest, EverythingElseIsRefusedByPlace) {
  EXPECT_THAT(Error("[]"), HasSubstr("logit_processors_test.json: must be an object"));
  EXPECT_THAT(Error("{\"a\": "), HasSubstr("logit_processors_test.json"));
  EXPECT_THAT(Error(R"({"a b": {}})"), HasSubstr("the name 'a b' must be 1 to 128 bytes"));
  EXPECT_THAT(Error(R"({"a": {}, "a": {}})"), HasSubstr("a"));
  EXPECT_THAT(Error(R"({"a": 3})"), HasSubstr("a: is not an object"));
  EXPECT_THAT(Error(R"({"a": {"bias": []}})"), HasSubstr("a: key 'bias' is not supported"));
  EXPECT_THAT(Error(R"({"a": {"logit_bias": [{"bias": 1}]}})"),
              HasSubstr("a.logit_bias[0]: needs a token or a text"));
  EXPECT_THAT(Error(R"({"a": {"logit_bias": [{"token": 1, "text": "a", "bias": 1}]}})"),
              HasSubstr("a.logit_bias[0]: needs a token or a text"));
  EXPECT_THAT(Error(R"({"a": {"logit_bias": [{"token": 1}]}})"),
              HasSubstr("a.logit_bias[0]: bias must be a number"));
  EXPECT_THAT(Error(R"({"a": {"logit_bias": [{"token": 1, "bias": 101}]}})"),
              HasSubstr("a: logit_bias of token 1 must be between -100 and 100"));
  EXPECT_THAT(Error(R"({"a": {"logit_bias": [{"token": 1, "bias": 1}, {"token": 1, "bias": 2}]}})"),
              HasSubstr("a.logit_bias[1]: token 1 has a bias already"));
  EXPECT_THAT(Error(R"({"a": {"logit_bias": [{"text": "two words", "bias": 1}]}})"),
              HasSubstr("a.logit_bias[0].text: is "));
  EXPECT_THAT(Error(R"({"a": {"bad_words": [""]}})"), HasSubstr("a.bad_words[0]: must be a text"));
  EXPECT_THAT(Error(R"({"a": {"bad_words": [[]]}})"), HasSubstr("a.bad_words[0]: is empty"));
  EXPECT_THAT(Error(R"({"a": {"bad_words": [["x"]]}})"), HasSubstr("a.bad_words[0][0]"));
  EXPECT_THAT(Error(R"({"a": {"banned_token_ids": [1000000]}})"), HasSubstr("token id 1000000"));
  EXPECT_THAT(Error(R"({"a": {"banned_token_ids": [-1]}})"), HasSubstr("a.banned_token_ids[0]"));
  EXPECT_THAT(Error(R"({"a": {"banned_token_ids": 1}})"),
              HasSubstr("a: 'banned_token_ids' is missing or not a list"));
  EXPECT_THAT(Error(R"({"a": {"allowed_token_ids": [4], "banned_token_ids": [4]}})"),
              HasSubstr("a: allowed_token_ids"));
  EXPECT_THAT(Error(R"({"a": {"bad_words": ["x"]}})", /*with_tokenizer=*/false),
              HasSubstr("a.bad_words[0]: this server has no tokenizer"));
  EXPECT_TRUE(Load(R"({"a": {"bad_words": [[1]]}})", /*with_tokenizer=*/false).ok());
  EXPECT_THAT(std::string(LogitProcessors::Load("/no/file", nullptr, 9).status().message()),
              HasSubstr("/no/file"));
}

}  // namespace
}  // namespace quire
