// StepRunner: something that executes plans: the Worker (a real model on a Backend), the
// ShadowWorker (every KV slot is a hash of its prefix), the NullWorker (tokens out of thin air, for
// host benchmarks).
#pragma once

#include "engine/values/step_plan.h"
#include "engine/worker/copy/copy_runner.h"

namespace quire {

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // Executes one plan and fills `result` (cleared by the callee). Plans arrive in step order, on
  // one thread. Aborts on a plan that breaks the protocol: that is a scheduler bug, never user
  // input.
  virtual void Run(const StepPlan& plan, StepResult& result) = 0;
  // What copies between its blocks and the host's pages, on threads of its own; null: nothing does.
  virtual CopyRunner* copies() { return nullptr; }
};

// StepPipeline: something that begins a step while others are not yet collected, at most as many as
// it was made for; the last to be launched is the last to be collected.
class StepPipeline {
 public:
  virtual ~StepPipeline() = default;
  // Begins a step. Like StepRunner::Run, but for the result.
  virtual void Launch(const StepPlan& plan) = 0;
  // Waits for the oldest step launched and fills its result. Another thread than Launch's may call
  // it, if each step's Launch happens before its Collect.
  virtual void Collect(StepResult& result) = 0;
  // As StepRunner's.
  virtual CopyRunner* copies() { return nullptr; }
};

}  // namespace quire
