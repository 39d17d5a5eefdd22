// SamplingParams::Validate at both sides of every range, and the names of finish reasons.
#include "engine/values/sampling_params.h"

#include <functional>
#include <limits>
#include <set>
#include <string>

#include "engine/values/request.h"
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
  };
  for (const FloatRange& range : kRanges) {
    const auto check = [&](float value) {
      SamplingParams params = Good();
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
