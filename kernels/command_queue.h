// CommandQueue: the order of one rank's device. Copies, operations and collectives are enqueued and
// run one after the other; the host learns by a mark or by Synchronize that they have ended.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/step_profiler.h"

namespace quire {

class CommandQueue {
 public:
  virtual ~CommandQueue() = default;

  // Blocks until everything enqueued so far has ended and is visible to the host.
  virtual void Synchronize() = 0;
  // Returns the number of this point in the queue. Numbers count up from 1.
  virtual uint64_t Mark() = 0;
  // Blocks until everything enqueued before the mark has ended and is visible to the host. The only
  // call that another thread may make: one thread at a time, for the newest mark or one of the 8
  // before it.
  virtual void WaitFor(uint64_t mark) = 0;
  // Runs fn. A device with graphs captures the calls that fn enqueues at the first run with `key`
  // and replays them at every later run, so fn must enqueue the same calls with the same arguments
  // each time. Key 0 is never captured.
  virtual void RunCaptured(int64_t key, const std::function<void()>& fn) = 0;
  // Measures the steps of this queue. Lives as long as the queue.
  virtual StepProfiler& profiler() = 0;
};

}  // namespace quire
