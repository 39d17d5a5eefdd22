// CommandQueue: the order of one rank's device. Copies, operations and collectives are enqueued and
// run one after the other; the host learns by a mark or by Synchronize that they have ended.
#pragma once

#include <cstdint>
#include <functional>

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
  // Names the work enqueued between the two calls in profiles: "layer 3". Ranges nest. Without a
  // profiler a call is one comparison; a replayed step makes none.
  virtual void BeginRange(const char* name, int64_t number) = 0;
  virtual void EndRange() = 0;
};

// A range of a profile that ends with this object. The queue must outlive it.
class NamedRange {
 public:
  NamedRange(CommandQueue& queue, const char* name, int64_t number) : queue_(queue) {
    queue_.BeginRange(name, number);
  }
  ~NamedRange() { queue_.EndRange(); }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  CommandQueue& queue_;
};

}  // namespace quire
