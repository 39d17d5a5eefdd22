// GuideMaker: where and how often grammars are compiled, and what is refused before and after.
#include "server/structured/guide_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <semaphore>
#include <thread>

#include "server/call/status_codec.h"
#include "server/metrics/guide_metrics.h"
#include "server/metrics/metrics.h"
#include "tests/engine/masks/scripted_guide.h"

namespace quire {
namespace {

using Guide = GuideMaker::Guide;
using GuideOr = absl::StatusOr<Guide>;

GrammarSource Regex(const std::string& text) { return {.kind = GrammarKind::kRegex, .text = text}; }

class GuideMakerTest : public ::testing::Test {
 protected:
  GuideMakerTest() {
    model_.tokenizer = *Tokenizer::Load(QUIRE_SOURCE_DIR "/models/demo/tokenizer.json");
    model_.setup.model.vocab_size = model_.tokenizer->size() + 3;  // padded, as some models are
    model_.setup.model.eos_token_ids = {1};
  }

  GuideOr Compile(const GrammarSource& source, std::shared_ptr<const GuideVocabulary> vocabulary) {
    if (source.text == "slow") {
      gate_.acquire();
      return absl::InvalidArgumentError("");
    }
    ++compiled_;
    vocabulary_ = std::move(vocabulary);
    thread_ = std::this_thread::get_id();
    if (source.text == "bad") return absl::InvalidArgumentError("byte 3: no such thing");
    return std::make_shared<const ScriptedGrammar>(GuideScript{.moves = {{{5, 0}}}});
  }
  // Waits for the answer.
  GuideOr Make(TenantId tenant, const std::string& text) {
    std::promise<GuideOr> answer;
    const absl::Status status = maker_.Make(
        tenant, Regex(text), [&answer](GuideOr guide) { answer.set_value(std::move(guide)); });
    if (!status.ok()) return status;
    return answer.get_future().get();
  }

  ServingModel model_;
  ServerMetrics metrics_{"demo"};
  int compiled_ = 0;
  std::shared_ptr<const GuideVocabulary> vocabulary_;
  std::thread::id thread_;
  std::counting_semaphore<> gate_{0};
  GuideMaker maker_{&model_, &metrics_.guides(),
                    [this](const GrammarSource& source, auto vocabulary) {
                      return Compile(source, std::move(vocabulary));
                    }};
};

TEST_F(GuideMakerTest, CompilesOnceForATenantAndOnAnotherThread) {
  const GuideOr first = Make(1, "a");
  ASSERT_TRUE(first.ok());
  EXPECT_NE(thread_, std::this_thread::get_id());
  EXPECT_EQ(*Make(1, "a"), *first);
  EXPECT_EQ(compiled_, 1);
  EXPECT_TRUE(Make(2, "a").ok());
  EXPECT_EQ(compiled_, 2) << "another tenant shares nothing";
  const std::string page = metrics_.Serialize(EngineStats());
  EXPECT_THAT(page, testing::HasSubstr("result=\"cached\"} 1"));
  EXPECT_THAT(page, testing::HasSubstr("result=\"compiled\"} 2"));
}

TEST_F(GuideMakerTest, TheVocabularyHasTheModelsTokensAndItsEnds) {
  ASSERT_TRUE(Make(1, "a").ok());
  EXPECT_EQ(vocabulary_->size(), model_.setup.model.vocab_size);
  EXPECT_THAT(vocabulary_->eos_ids(), testing::ElementsAre(1));
  int with_text = 0;
  for (int32_t id = 0; id < model_.tokenizer->size(); ++id) {
    EXPECT_EQ(vocabulary_->bytes(id), model_.tokenizer->TokenBytes(id));
    with_text += !vocabulary_->bytes(id).empty();
    EXPECT_TRUE(!model_.tokenizer->IsSpecial(id) || vocabulary_->bytes(id).empty());
  }
  EXPECT_GT(with_text, 100);
}

TEST_F(GuideMakerTest, PassesTheReasonOfARefusalOnAndForgetsIt) {
  for (int i = 1; i <= 2; ++i) {
    const GuideOr refused = Make(1, "bad");
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
    EXPECT_THAT(refused.status().ToString(), testing::HasSubstr("byte 3"));
    EXPECT_EQ(compiled_, i);
  }
}

TEST_F(GuideMakerTest, ASlowGrammarLeavesAThreadToOthers) {
  std::promise<void> done;
  ASSERT_TRUE(maker_.Make(1, Regex("slow"), [&done](GuideOr) { done.set_value(); }).ok());
  EXPECT_TRUE(Make(2, "a").ok());
  gate_.release();
  done.get_future().wait();
}

TEST_F(GuideMakerTest, RefusesAModelWithoutTextOrEnd) {
  model_.setup.model.eos_token_ids.clear();
  EXPECT_EQ(ReasonOf(Make(1, "a").status()), "NO_END_TOKEN");
  model_.tokenizer = nullptr;
  EXPECT_EQ(ReasonOf(Make(1, "a").status()), "NO_TOKENIZER");
  EXPECT_EQ(compiled_, 0);
}

TEST(CheckFirstTokenTest, SomeTokenMustBeLeft) {
  const ScriptedGrammar guide({.moves = {{{5, 0}, {40, 0}}}});
  SamplingParams sampling;
  EXPECT_TRUE(CheckFirstToken(guide, sampling, 64).ok());
  sampling.allowed_token_ids = {4, 40};
  EXPECT_TRUE(CheckFirstToken(guide, sampling, 64).ok());
  sampling.allowed_token_ids = {4, 6};
  EXPECT_EQ(FieldOf(CheckFirstToken(guide, sampling, 64)), "sampling.allowed_token_ids");
  sampling.allowed_token_ids.clear();
  sampling.bad_words = {~5, 5, ~40};
  EXPECT_TRUE(CheckFirstToken(guide, sampling, 64).ok()) << "40 is banned behind 5 alone";
  sampling.bad_words = {~5, ~40};
  EXPECT_EQ(FieldOf(CheckFirstToken(guide, sampling, 64)), "sampling.banned_token_ids");
}

}  // namespace
}  // namespace quire
