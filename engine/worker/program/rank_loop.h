// RankLoop: the life of one rank behind shared memory: plans in, steps launched, results out. Two
// threads: one waits for plans and never for the device, one waits for the device. Beside them
// those of its copies, if it has any.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "engine/worker/process/step_memory.h"
#include "engine/worker/rank/step_runner.h"

namespace quire {

class RankLoop {
 public:
  struct Place {
    int32_t rank = 0;
    int64_t spin_ns = 0;  // before the rank sleeps for want of a plan
  };

  // All outlive this. `bell` is the WakeEvent's word of the thread that reads results.
  RankLoop(const StepMemory& memory, std::atomic<uint32_t>& bell, StepPipeline& pipeline,
           const Place& place);

  // Returns after the plan that says shutdown, or INTERNAL for bytes that are no plan and for a
  // plan beyond the steps in flight; every step launched is then published.
  absl::Status Run();

 private:
  absl::Status LaunchAll();
  void CollectAll();
  void Beat();

  const StepMemory& memory_;
  std::atomic<uint32_t>& bell_;
  StepPipeline& pipeline_;
  const Place place_;
  Heartbeat& heartbeat_;
  // Steps launched; the top bit: no more will be.
  std::atomic<uint64_t> launched_{0};
  std::atomic<uint64_t> collected_{0};
};

}  // namespace quire
