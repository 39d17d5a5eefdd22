// Least squares with costs that are not negative, by coordinate descent.
#include "engine/schedule/pace/step_cost_fit.h"

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

constexpr double kDecay = 0.995;
constexpr double kMostOff = 2;
// Each step begins where the last one ended, so that few rounds are enough.
constexpr int kRounds = 8;
// Below this a part was not seen for thousands of steps.
constexpr double kUnseen = 1e-12;
constexpr double kRecentWeight = 0.02;
// Of the mean step: no shape is expected to take less. One that was never seen has no costs yet.
constexpr double kLeastOfMean = 1.0 / 16;

}  // namespace

void StepCostFit::Add(const StepShape& shape, double seconds) {
  if (!(seconds > 0)) return;
  double scale = seconds;
  if (cost_.known) {
    scale = std::max(cost_.Seconds(shape), kLeastOfMean * mean_seconds_);
    error_ += kRecentWeight * (std::min(std::abs(seconds / scale - 1), kMostOff) - error_);
    seconds = std::clamp(seconds, scale / kMostOff, scale * kMostOff);
  }
  mean_seconds_ += (mean_seconds_ == 0 ? 1 : kRecentWeight) * (seconds - mean_seconds_);
  // Tokens first: while steps of one size do not tell parts apart, all time is for tokens.
  const Parts parts = {shape.prompt_tokens, shape.rows, shape.contexts, shape.prompt_reads, 1};
  for (int i = 0; i < kParts; ++i) {
    for (int j = 0; j < kParts; ++j) {
      products_[i][j] = kDecay * products_[i][j] + parts[i] * parts[j] / (scale * scale);
    }
    sums_[i] = kDecay * sums_[i] + parts[i] * seconds / (scale * scale);
  }
  Descend();
  prompt_steps_ += shape.prompt_tokens > 0 && prompt_steps_ < kMinPromptSteps;
  cost_ = {.step = found_[4],
           .row = found_[1],
           .context = found_[2],
           .prompt_token = found_[0],
           .prompt_read = found_[3],
           .known = prompt_steps_ >= kMinPromptSteps};
}

void StepCostFit::Descend() {
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kParts; ++i) {
      if (products_[i][i] < kUnseen) continue;
      double rest = sums_[i];
      for (int j = 0; j < kParts; ++j) rest -= j == i ? 0 : products_[i][j] * found_[j];
      found_[i] = std::max(0.0, rest / products_[i][i]);
    }
  }
}

}  // namespace quire
