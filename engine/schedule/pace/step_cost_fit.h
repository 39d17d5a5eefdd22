// StepCostFit: finds what each part of a step costs from the times of steps of late, by least
// squares of relative errors. No cost is ever negative, and a part that no step of late had keeps
// the cost it was last found to have. A step counts half after 140 others. One that took more than
// twice or less than half of what was expected counts as just twice or half: an outlier moves the
// costs little, and a lasting change moves them all the same.
//
// The same times give the same costs. Allocates nothing. One thread.
#pragma once

#include <array>
#include <cstdint>

#include "engine/values/step_cost.h"

namespace quire {

class StepCostFit {
 public:
  // Steps with prompt tokens before the costs are known.
  static constexpr int32_t kMinPromptSteps = 8;

  // A step of this shape took `seconds`; ignored unless that is positive.
  void Add(const StepShape& shape, double seconds);
  const StepCost& cost() const { return cost_; }
  // How far predictions of late were off: the mean of |measured / predicted - 1|. 0 before the
  // first.
  double error() const { return error_; }

 private:
  static constexpr int kParts = 5;
  using Parts = std::array<double, kParts>;

  void Descend();

  // The normal equations, each step weighted by its age and by 1 / expected^2.
  std::array<Parts, kParts> products_{};
  Parts sums_{};
  Parts found_{};
  int32_t prompt_steps_ = 0;
  double mean_seconds_ = 0;
  StepCost cost_;
  double error_ = 0;
};

}  // namespace quire
