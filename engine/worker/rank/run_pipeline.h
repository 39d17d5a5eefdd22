// RunPipeline: makes a StepPipeline of a StepRunner: Launch runs the whole step.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/worker/rank/step_runner.h"

namespace quire {

class RunPipeline final : public StepPipeline {
 public:
  RunPipeline(std::unique_ptr<StepRunner> runner, int32_t steps_in_flight)
      : runner_(std::move(runner)), results_(static_cast<size_t>(steps_in_flight)) {}

  void Launch(const StepPlan& plan) override {
    runner_->Run(plan, results_[launched_++ % results_.size()]);
  }
  void Collect(StepResult& result) override {
    std::swap(result, results_[collected_++ % results_.size()]);
  }
  bool AttachMasks(const MaskBoard& board) override { return runner_->AttachMasks(board); }
  CopyRunner* copies() override { return runner_->copies(); }

 private:
  const std::unique_ptr<StepRunner> runner_;
  std::vector<StepResult> results_;  // a ring
  uint64_t launched_ = 0;
  uint64_t collected_ = 0;
};

}  // namespace quire
