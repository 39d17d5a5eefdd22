// RankLoop: runs one rank behind shared memory: reads plans, launches steps, publishes results. Two
// threads: one waits for plans and never for the device, one waits for the device. The threads of
// its copies, if any, run beside them.
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
    int64_t spin_ns = 0;  // before the rank sleeps while it waits for a plan
  };

  // All arguments outlive this. `bell` is the word of the WakeEvent of the thread that reads
  // results.
  RankLoop(const StepMemory& memory, std::atomic<uint32_t>& bell, StepPipeline& pipeline,
           const Place& place);

  // Returns OK after the shutdown plan, INTERNAL for malformed bytes and for a plan beyond the
  // steps in flight. Every launched step has been published on return.
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
  // Steps launched; the top bit: no step follows.
  std::atomic<uint64_t> launched_{0};
  std::atomic<uint64_t> collected_{0};
};

}  // namespace quire
