// PredictTtft: predictions against servers whose steps take known times.
#include "engine/ttft_model.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TtftSituation With(double step_seconds, double token_seconds, TtftSituation situation) {
  situation.step_seconds = step_seconds;
  situation.token_seconds = token_seconds;
  return situation;
}

TEST(TtftModelTest, PredictsNothingFromUnknownTimes) {
  EXPECT_FALSE(PredictTtft({.prompt_tokens = 10, .step_tokens = 100}).has_value());
}

TEST(TtftModelTest, CountsStepsAndTokens) {
  // The step in flight, and one of its own.
  EXPECT_NEAR(*PredictTtft(With(0.02, 0.0001, {.prompt_tokens = 100, .step_tokens = 512})), 0.05,
              1e-9);
  // 2048 tokens ahead: five more steps.
  EXPECT_NEAR(*PredictTtft(With(0.02, 0.0001,
                                {.prompt_tokens = 100, .own_tokens = 2048, .step_tokens = 512})),
              6 * 0.02 + 2148 * 0.0001, 1e-9);
}

TEST(TtftModelTest, OtherTenantsCountByTheirWeight) {
  const TtftSituation alone = With(0, 0.001, {.prompt_tokens = 100, .step_tokens = 512});
  TtftSituation beside = alone;
  beside.other_tokens = 1'000'000;
  beside.share = 0.5;
  EXPECT_NEAR(*PredictTtft(beside), 2 * *PredictTtft(alone), 0.02);
  beside.share = 0.25;
  EXPECT_NEAR(*PredictTtft(beside), 4 * *PredictTtft(alone), 0.04);
  beside.other_tokens = 10;  // they have no more
  EXPECT_NEAR(*PredictTtft(beside), *PredictTtft(alone) + 0.01, 0.005);
}

TEST(TtftModelTest, WaitForARowFollowsTheRateOfAdmissions) {
  TtftSituation situation = {.prompt_tokens = 10,
                             .own_waiting = 19,
                             .own_begun_per_second = 4,
                             .step_tokens = 512,
                             .waits_for_row = true};
  situation = With(0.01, 0.0001, situation);
  EXPECT_NEAR(*PredictTtft(situation), 5 + 0.02, 0.05);
  situation.own_begun_per_second = 0;
  EXPECT_FALSE(PredictTtft(situation).has_value());
}

}  // namespace
}  // namespace quire
