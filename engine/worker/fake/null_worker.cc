// Answers every plan at once.
#include "engine/worker/fake/null_worker.h"

namespace quire {

void NullWorker::Run(const StepPlan& plan, StepResult& result) {
  result.step = plan.step;
  result.checksum = 0;
  result.started_ns = result.enqueued_ns = result.finished_ns = 0;
  result.parts.clear();
  result.samples.clear();
  for (const RowWork& work : plan.work) {
    for (int32_t i = work.sample - 1; i >= 0; --i) {
      const uint32_t draw = static_cast<uint32_t>(work.row) * 31 + (work.start + work.count - i);
      result.samples.push_back({work.row, {static_cast<int32_t>(draw % vocab_size_), 0.0f, 0}});
    }
  }
}

}  // namespace quire
