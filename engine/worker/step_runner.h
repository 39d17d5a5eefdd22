// StepRunner: something that executes plans: the Worker (a real model on a Backend), the
// ShadowWorker (every KV slot is a hash of its prefix), the NullWorker (tokens out of thin air, for
// host benchmarks).
#pragma once

#include "engine/step_plan.h"

namespace quire {

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // Executes one plan and fills `result` (cleared by the callee). Plans arrive in step order, on
  // one thread. Aborts on a plan that breaks the protocol: that is a scheduler bug, never user
  // input.
  virtual void Run(const StepPlan& plan, StepResult& result) = 0;
};

}  // namespace quire
