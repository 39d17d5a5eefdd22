// NullWorker: a StepRunner whose tokens cost no computation, for benchmarks of the host side.
#pragma once

#include <cstdint>

#include "engine/worker/rank/step_runner.h"

namespace quire {

class NullWorker : public StepRunner {
 public:
  // Tokens are drawn from [0, vocab_size), by row and position.
  explicit NullWorker(int32_t vocab_size) : vocab_size_(vocab_size) {}
  void Run(const StepPlan& plan, StepResult& result) override;

 private:
  const int32_t vocab_size_;
};

}  // namespace quire
