// MaskExchange: passes guides between the scheduler and the threads that make masks, so that masks
// are made while the steps in flight run.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/masks/mask_pool.h"
#include "engine/schedule/scheduler.h"

namespace quire {

class MaskExchange {
 public:
  // `on_done` is called on another thread when a mask is made; it must not block.
  explicit MaskExchange(std::function<void()> on_done);

  // Hands out the guides whose masks are wanted, and brings back those whose masks are made. While
  // a step is running, which takes about `step_ns` (0: none is), waits a moment for masks that were
  // just wanted, so that their rows are in the next plan: the device has work meanwhile. False if
  // none came back. The scheduler's thread.
  bool Run(int64_t step_ns, Scheduler& scheduler, SchedulerEvents& events);
  MaskStats stats(const Scheduler& scheduler) const;

 private:
  // Of the running step's time; the next plan must be there before it ends.
  static constexpr int64_t kPatienceShare = 8;
  static constexpr int64_t kMaxPatienceNs = 1'000'000;

  MaskPool pool_;
};

}  // namespace quire
