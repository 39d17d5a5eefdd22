// SamplingParams::Validate at both sides of every range, and the names of finish reasons.
#include "engine/values/sampling_params.h"

#include <functional>
#include <limits>
#include <set>
#include <string>

#include "engine/values/request.h"
#include "engine/values/sampling_fields.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::StartsWith;

constexpr int32_t kVocab = 100;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingParams Good() {
  SamplingParams params;
  params.max_tokens = 10;
  return params;
}

TEST(SamplingParamsTest, DefaultsAreValid) { EXPECT_TRUE(Good().Validate(kVocab).ok()); }

// A field by its proto name, the float it is, and its range.
struct FloatRange {
  const char* field;
  float SampleRow::*member;
  float low;
  float high;
  bool low_allowed;
};

TEST(SamplingParamsTest, FloatsHaveTheirRanges) {
  constexpr FloatRange kRanges[] = {
      {"temperature", &SampleRow::temperature, 0, 100, true},
      {"top_p", &SampleRow::top_p, 0, 1, false},
      {"min_p", &SampleRow::min_p, 0, 1, true},
      {"repetition_penalty", &SampleRow::repetition_penalty, 0.01f, 10, true},
      {"presence_penalty", &SampleRow::presence_penalty, -2, 2, true},
      {"frequency_penalty", &SampleRow::frequency_penalty, -2, 2, true},
      {"top_n_sigma", &SampleRow::top_n_sigma, 0, 100, true},
      {"dynatemp_range", &SampleRow::dynatemp_range, 0, 100, true},
      {"dynatemp_exponent", &SampleRow::dynatemp_exponent, 0, 10, true},
      {"typical_p", &SampleRow::typical_p, 0, 1, false},
      {"xtc_probability", &SampleRow::xtc_probability, 0, 1, true},
      {"xtc_threshold", &SampleRow::xtc_threshold, 0, 0.5f, false},
      {"dry_multiplier", &SampleRow::dry_multiplier, 0, 100, true},
      {"dry_base", &SampleRow::dry_base, 1, 4, true},
  };
  for (const FloatRange& range : kRanges) {
    const auto check = [&](float value) {
      SamplingParams params = Good();
      if (range.member == &SampleRow::dynatemp_range) params.row.temperature = 100;
      params.row.*range.member = value;
      const absl::Status status = params.Validate(kVocab);
      if (!status.ok()) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(status.message()), StartsWith(std::string(range.field) + " "));
      }
      return status.ok();
    };
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(check(range.low), range.low_allowed) << range.field;
    EXPECT_TRUE(check(range.high)) << range.field;
    EXPECT_TRUE(check(std::nextafter(range.low, infinity))) << range.field;
    EXPECT_FALSE(check(std::nextafter(range.low, -infinity))) << range.field;
    EXPECT_FALSE(check(std::nextafter(range.high, infinity))) << range.field;
    for (const float bad : {kNan, -kNan, infinity, -infinity}) {
      EXPECT_FALSE(check(bad)) << range.field;
    }
  }
}

TEST(SamplingParamsTest, EveryFieldOfTheTableHasItsRange) {
  for (const SamplingField& field : SamplingFields()) {
    SampleRow row;
    EXPECT_TRUE(field.InRange(field.Of(row))) << field.name << ": the default is in range";
    EXPECT_EQ(field.InRange(field.low), !field.above_low) << field.name;
    EXPECT_TRUE(field.InRange(field.high)) << field.name;
    EXPECT_FALSE(field.InRange(std::nextafter(field.low, -1e9))) << field.name;
    EXPECT_FALSE(field.InRange(std::nextafter(field.high, 1e12))) << field.name;
    EXPECT_FALSE(field.InRange(kNan)) << field.name;
  }
}

TEST(SamplingParamsTest, CountsHaveTheirRanges) {
  SamplingParams params = Good();
  for (const int32_t length : {0, -1, 51}) {
    params.row.dry_allowed_length = length;
    EXPECT_THAT(std::string(params.Validate(kVocab).message()),
                StartsWith("dry_allowed_length must be between 1 and 50, not "));
  }
  params = Good();
  params.row.dry_last_n = -1;
  EXPECT_THAT(std::string(params.Validate(kVocab).message()), StartsWith("dry_last_n must be "));
}

TEST(SamplingParamsTest, LoopsHaveTheirRanges) {
  const auto accepts = [](int32_t tokens, int32_t repeats) {
    SamplingParams params = Good();
    params.loop_max_tokens = tokens;
    params.loop_min_repeats = repeats;
    return params.Validate(kVocab).ok();
  };
  EXPECT_TRUE(accepts(0, 2));
  EXPECT_TRUE(accepts(256, 100));
  for (const int32_t bad : {-1, 257}) EXPECT_FALSE(accepts(bad, 8)) << bad;
  for (const int32_t bad : {-1, 1, 101}) EXPECT_FALSE(accepts(5, bad)) << bad;
}

TEST(SamplingParamsTest, ContradictionsAreRefused) {
  const auto refusal = [](const auto& spoil) {
    SamplingParams params = Good();
    spoil(params);
    return std::string(params.Validate(kVocab).message());
  };
  EXPECT_THAT(refusal([](auto& p) {
                p.row.temperature = 0.5f;
                p.row.dynatemp_range = 0.6f;
              }),
              StartsWith("dynatemp_range must be at most the temperature, 0.5, not 0.6"));
  EXPECT_THAT(refusal([](auto& p) {
                p.row.temperature = 0;
                p.row.xtc_probability = 0.5f;
              }),
              StartsWith("xtc_probability needs a temperature above 0"));
  EXPECT_THAT(refusal([](auto& p) {
                p.allowed_token_ids = {3, 4};
                p.bad_words = {~4, 7, ~3};
              }),
              StartsWith("allowed_token_ids holds only ids that are banned, that bad words"));
  EXPECT_THAT(refusal([](auto& p) {
                p.allowed_token_ids = {3};
                p.min_tokens = 1;
                p.eos_token_ids = {3};
              }),
              StartsWith("allowed_token_ids "));
  EXPECT_THAT(refusal([](auto& p) {
                for (int32_t id = 0; id < kVocab; ++id) p.bad_words.push_back(~id);
              }),
              StartsWith("bad_word_ids may ban every token"));
  EXPECT_EQ(refusal([](auto& p) {
              p.allowed_token_ids = {3, 4};
              p.bad_words = {~4, 3, ~5};
            }),
            "");
}

TEST(SamplingParamsTest, ListsAreBounded) {
  using P = SamplingParams;
  struct List {
    const char* field;
    std::vector<int32_t> P::*member;
    int most;
  };
  for (const List& list : {List{"bad_word_ids", &P::bad_words, P::kMaxBadWordIds},
                           List{"allowed_token_ids", &P::allowed_token_ids, P::kMaxAllowedIds},
                           List{"dry_breaker_ids", &P::dry_breaker_ids, P::kMaxBreakers}}) {
    P params = Good();
    (params.*list.member).assign(static_cast<size_t>(list.most), 5);
    EXPECT_TRUE(params.Validate(kVocab).ok()) << list.field;
    (params.*list.member).push_back(5);
    EXPECT_THAT(std::string(params.Validate(kVocab).message()),
                StartsWith(std::string(list.field) + " has "));
    params.*list.member = {kVocab};
    EXPECT_THAT(std::string(params.Validate(kVocab).message()),
                StartsWith(std::string(list.field) + " holds token id 100"));
  }
  P params = Good();
  params.bad_words = {~kVocab};
  EXPECT_THAT(std::string(params.Validate(kVocab).message()), StartsWith("bad_word_ids holds "));
}

// Every allowed penalty leaves a logit finite.
TEST(SamplingParamsTest, NoPenaltyOverflowsALogit) {
  SamplingParams params = Good();
  for (const float penalty : {1e-38f, 1e-6f, 0.009f}) {
    params.row.repetition_penalty = penalty;
    EXPECT_THAT(std::string(params.Validate(kVocab).message()),
                StartsWith("repetition_penalty must be between 0.01 and 10, not "));
  }
  params.row.repetition_penalty = 0.01f;
  EXPECT_TRUE(params.Validate(kVocab).ok());
}

TEST(SamplingParamsTest, MinTokensLeavesATokenToSample) {
  SamplingParams params = Good();
  params.max_tokens = 10;
  params.eos_token_ids = {0, 1, 1};
  params.stop_token_ids = {2, 1};
  EXPECT_TRUE(params.Validate(3).ok());
  params.min_tokens = 1;
  EXPECT_TRUE(params.Validate(4).ok());
  EXPECT_TRUE(params.Validate(5).ok());
  EXPECT_THAT(std::string(params.Validate(3).message()), StartsWith("min_tokens must be 0 where"));
}

TEST(SamplingParamsTest, CountsAndIdsHaveTheirRanges) {
  const std::vector<std::pair<std::string, std::function<void(SamplingParams&)>>> bad = {
      {"top_k", [](auto& p) { p.row.top_k = -1; }},
      {"top_k", [](auto& p) { p.row.top_k = kVocab + 1; }},
      {"max_tokens", [](auto& p) { p.max_tokens = 0; }},
      {"min_tokens", [](auto& p) { p.min_tokens = -1; }},
      {"min_tokens", [](auto& p) { p.min_tokens = 11; }},
      {"stop", [](auto& p) { p.stop.assign(17, "x"); }},
      {"stop", [](auto& p) { p.stop = {""}; }},
      {"stop", [](auto& p) { p.stop = {std::string(257, 'x')}; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids.assign(65, 1); }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids = {-1}; }},
      {"stop_token_ids", [](auto& p) { p.stop_token_ids = {kVocab}; }},
      {"eos_token_ids", [](auto& p) { p.eos_token_ids = {kVocab}; }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{kVocab, 1.0f}};
       }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{-1, 1.0f}};
       }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{1, 100.5f}};
       }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{1, kNan}};
       }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias = {{1, 1.0f}, {2, 1.0f}, {1, 2.0f}};
       }},
      {"logit_bias",
       [](auto& p) {
         p.logit_bias.assign(1025, {1, 1.0f});
       }},
  };
  for (const auto& [field, spoil] : bad) {
    SamplingParams params = Good();
    spoil(params);
    const absl::Status status = params.Validate(kVocab);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), StartsWith(field + " "));
  }
  const std::vector<std::function<void(SamplingParams&)>> good = {
      [](auto& p) { p.row.top_k = kVocab; },
      [](auto& p) { p.max_tokens = std::numeric_limits<int32_t>::max(); },
      [](auto& p) { p.min_tokens = 10; },
      [](auto& p) { p.stop.assign(16, std::string(256, 'x')); },
      [](auto& p) { p.stop_token_ids.assign(64, kVocab - 1); },
      [](auto& p) {
        p.logit_bias = {{0, -100.0f}, {kVocab - 1, 100.0f}};
      },
  };
  for (size_t i = 0; i < good.size(); ++i) {
    SamplingParams params = Good();
    good[i](params);
    EXPECT_TRUE(params.Validate(kVocab).ok()) << i;
  }
}

TEST(FinishReasonTest, NamesDiffer) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(FinishReason::kEngineFault); ++i) {
    names.insert(Name(static_cast<FinishReason>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(FinishReason::kEngineFault) + 1);
  EXPECT_FALSE(names.contains("UNKNOWN"));
}

}  // namespace
}  // namespace quire
