// TtftModel: predictions against servers whose steps take known times.
#include "engine/ttft_model.h"

#include <gtest/gtest.h>

#include <random>

namespace quire {
namespace {

TtftModel Measured(double step_seconds, double token_seconds, double noise = 0) {
  TtftModel model;
  std::mt19937_64 random(3);
  for (int i = 0; i < 1000; ++i) {
    const int64_t tokens = random() % 3 == 0 ? static_cast<int64_t>(random() % 512) : 0;
    const double around = 1 + noise * (static_cast<double>(random() % 2001) / 1000 - 1);
    model.AddStep(tokens, (step_seconds + token_seconds * static_cast<double>(tokens)) * around);
  }
  return model;
}

TEST(TtftModelTest, PredictsNothingBeforeEnoughSteps) {
  TtftModel model;
  for (int i = 0; i < 1000; ++i) model.AddStep(0, 0.01);
  EXPECT_FALSE(model.Predict({.prompt_tokens = 10, .step_tokens = 100}).has_value());
  for (int i = 0; i < TtftModel::kMinSteps; ++i) model.AddStep(100, 0.02);
  EXPECT_TRUE(model.Predict({.prompt_tokens = 10, .step_tokens = 100}).has_value());
}

TEST(TtftModelTest, FindsTheTimesOfStepsAndTokens) {
  const TtftModel model = Measured(0.02, 0.0001, 0.1);
  // The step in flight, and one of its own.
  EXPECT_NEAR(*model.Predict({.prompt_tokens = 100, .step_tokens = 512}), 0.05, 0.005);
  // 2048 tokens ahead: five more steps.
  EXPECT_NEAR(*model.Predict({.prompt_tokens = 100, .own_tokens = 2048, .step_tokens = 512}),
              6 * 0.02 + 2148 * 0.0001, 0.03);
}

TEST(TtftModelTest, StepsOfOneSizePredictTheirRate) {
  TtftModel model;
  for (int i = 0; i < 100; ++i) model.AddStep(512, 0.1);
  EXPECT_NEAR(*model.Predict({.prompt_tokens = 512, .own_tokens = 5120, .step_tokens = 512}), 1.1,
              0.01);
}

TEST(TtftModelTest, OtherTenantsCountByTheirWeight) {
  const TtftModel model = Measured(0, 0.001);
  const TtftSituation alone = {.prompt_tokens = 100, .step_tokens = 512};
  TtftSituation beside = alone;
  beside.other_tokens = 1'000'000;
  beside.share = 0.5;
  EXPECT_NEAR(*model.Predict(beside), 2 * *model.Predict(alone), 0.02);
  beside.share = 0.25;
  EXPECT_NEAR(*model.Predict(beside), 4 * *model.Predict(alone), 0.04);
  beside.other_tokens = 10;  // they have no more
  EXPECT_NEAR(*model.Predict(beside), *model.Predict(alone) + 0.01, 0.005);
}

TEST(TtftModelTest, WaitForARowFollowsTheRateOfAdmissions) {
  const TtftModel model = Measured(0.01, 0.0001);
  TtftSituation situation = {.prompt_tokens = 10,
                             .own_waiting = 19,
                             .own_begun_per_second = 4,
                             .step_tokens = 512,
                             .waits_for_row = true};
  EXPECT_NEAR(*model.Predict(situation), 5 + 0.02, 0.05);
  situation.own_begun_per_second = 0;
  EXPECT_FALSE(model.Predict(situation).has_value());
}

}  // namespace
}  // namespace quire
