// StepCostFit: known costs come back from noisy times, whatever else happens to them.
#include "engine/schedule/pace/step_cost_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace quire {
namespace {

// Close to an 8B model on one GPU, in seconds.
constexpr StepCost kTrue = {.step = 3e-3,
                            .row = 20e-6,
                            .context = 32e-9,
                            .prompt_token = 21e-6,
                            .prompt_read = 1e-9,
                            .known = true};

class FitTest : public testing::Test {
 protected:
  double Uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  // A step of a server under mixed load; every third has prompts.
  StepShape Step() {
    StepShape shape{.rows = std::floor(Uniform(0, 256))};
    shape.contexts = shape.rows * Uniform(100, 4000);
    if (random_() % 3 == 0) {
      shape.prompt_tokens = std::floor(Uniform(16, 2048));
      shape.prompt_reads = shape.prompt_tokens * Uniform(0, 8000);
    }
    return shape;
  }
  void Run(int steps, const StepCost& cost, double noise) {
    for (int i = 0; i < steps; ++i) {
      const StepShape shape = Step();
      fit_.Add(shape, cost.Seconds(shape) * Uniform(1 - noise, 1 + noise));
    }
  }
  void ExpectNear(const StepCost& cost, double part) const {
    const StepCost& found = fit_.cost();
    EXPECT_NEAR(found.step, cost.step, part * cost.step);
    EXPECT_NEAR(found.row, cost.row, part * cost.row);
    EXPECT_NEAR(found.context, cost.context, part * cost.context);
    EXPECT_NEAR(found.prompt_token, cost.prompt_token, part * cost.prompt_token);
    EXPECT_NEAR(found.prompt_read, cost.prompt_read, part * cost.prompt_read);
  }
  void ExpectSound() const {
    const StepCost& cost = fit_.cost();
    for (double part : {cost.step, cost.row, cost.context, cost.prompt_token, cost.prompt_read}) {
      EXPECT_TRUE(std::isfinite(part));
      EXPECT_GE(part, 0);
    }
  }

  std::mt19937_64 random_{7};
  StepCostFit fit_;
};

TEST_F(FitTest, IsUnknownBeforeStepsWithPrompts) {
  for (int i = 0; i < 1000; ++i) fit_.Add({.rows = 8, .contexts = 8000}, 0.004);
  EXPECT_FALSE(fit_.cost().known);
  EXPECT_EQ(fit_.error(), 0);
  for (int i = 0; i < StepCostFit::kMinPromptSteps; ++i) fit_.Add({.prompt_tokens = 100}, 0.01);
  EXPECT_TRUE(fit_.cost().known);
}

TEST_F(FitTest, RecoversCostsFromExactTimes) {
  Run(2000, kTrue, 0);
  ExpectNear(kTrue, 0.001);
  EXPECT_LT(fit_.error(), 1e-3);
}

TEST_F(FitTest, RecoversCostsFromNoisyTimes) {
  Run(4000, kTrue, 0.05);
  ExpectNear(kTrue, 0.2);
  EXPECT_NEAR(fit_.error(), 0.025, 0.01);  // the mean of the noise's size
}

TEST_F(FitTest, StepsOfOneSizeGiveAllTimeToTokens) {
  for (int i = 0; i < 100; ++i) fit_.Add({.prompt_tokens = 512}, 0.1);
  EXPECT_NEAR(fit_.cost().prompt_token, 0.1 / 512, 1e-9);
  EXPECT_NEAR(fit_.cost().step, 0, 1e-9);
}

// Nothing is known of rows when the first step with rows comes.
TEST_F(FitTest, LearnsAPartThatComesLate) {
  for (int i = 0; i < 1000; ++i) fit_.Add({.prompt_tokens = 512}, 0.1);
  Run(4000, kTrue, 0);
  ExpectNear(kTrue, 0.02);
}

TEST_F(FitTest, AnOutlierMovesPredictionsLittle) {
  Run(1000, kTrue, 0.02);
  const StepShape shape{.rows = 64, .contexts = 64e3, .prompt_tokens = 512};
  const double before = fit_.cost().Seconds(shape);
  fit_.Add(shape, 60);
  EXPECT_NEAR(fit_.cost().Seconds(shape), before, 0.1 * before);
  fit_.Add(shape, 1e-9);
  EXPECT_NEAR(fit_.cost().Seconds(shape), before, 0.1 * before);
  ExpectSound();
}

TEST_F(FitTest, AnOutlierAtTheStartIsForgotten) {
  fit_.Add({.prompt_tokens = 2048}, 30);
  Run(3000, kTrue, 0);
  ExpectNear(kTrue, 0.02);
}

TEST_F(FitTest, FollowsALastingChange) {
  Run(1000, kTrue, 0.02);
  StepCost slow = kTrue;
  for (double* part :
       {&slow.step, &slow.row, &slow.context, &slow.prompt_token, &slow.prompt_read}) {
    *part *= 5;
  }
  Run(4000, slow, 0);
  ExpectNear(slow, 0.05);
}

// Two hours of decoding, then prompts again.
TEST_F(FitTest, KeepsTheCostOfWhatNoStepHad) {
  Run(2000, kTrue, 0);
  for (int i = 0; i < 500'000; ++i) {
    const StepShape shape{.rows = 1.0 + i % 64, .contexts = 1000.0 * (1 + i % 64)};
    fit_.Add(shape, kTrue.Seconds(shape));
  }
  EXPECT_NEAR(fit_.cost().prompt_token, kTrue.prompt_token, 0.01 * kTrue.prompt_token);
  ExpectSound();
}

TEST_F(FitTest, NoTimesMakeACostNegative) {
  for (int i = 0; i < 20'000; ++i) {
    fit_.Add(Step(), std::pow(10.0, Uniform(-9, 3)));
    ExpectSound();
  }
  for (double seconds : {0.0, -1.0, std::nan("")}) fit_.Add(Step(), seconds);
  ExpectSound();
}

}  // namespace
}  // namespace quire
