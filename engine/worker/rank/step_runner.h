// StepRunner: executes plans: the Worker (a real model on a Backend), the ShadowWorker (every KV
// slot is a hash of its prefix), the NullWorker (tokens without a model, for host benchmarks).
#pragma once

#include "engine/values/mask_board.h"
#include "engine/values/step_plan.h"
#include "engine/values/step_result.h"
#include "engine/worker/copy/copy_runner.h"

namespace quire {

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  // Executes one plan and fills `result` (cleared by the callee). Plans arrive in step order, on
  // one thread. Aborts on a plan that breaks the protocol: that is a scheduler bug, never user
  // input.
  virtual void Run(const StepPlan& plan, StepResult& result) = 0;
  // Where the late masks of its plans come. Before the first step; the board's memory outlives
  // this. False if its device cannot use them there.
  virtual bool AttachMasks(const MaskBoard&) { return true; }
  // The copier between its blocks and the host's pages, used on other threads; null: no copies.
  virtual CopyRunner* copies() { return nullptr; }
};

// StepPipeline: begins a step before earlier ones are collected, up to a fixed number in flight.
// Steps are collected in the order they were launched.
class StepPipeline {
 public:
  virtual ~StepPipeline() = default;
  // Begins a step; the rules of StepRunner::Run hold. Collect returns its result.
  virtual void Launch(const StepPlan& plan) = 0;
  // Waits for the oldest step launched and fills its result. Another thread than Launch's may call
  // it, if each step's Launch happens before its Collect.
  virtual void Collect(StepResult& result) = 0;
  // As StepRunner's.
  virtual bool AttachMasks(const MaskBoard&) { return true; }
  virtual CopyRunner* copies() { return nullptr; }
};

}  // namespace quire
