// MaskExchange: passes guides between the scheduler and the threads that make masks, so that masks
// are made while the steps in flight run.
#pragma once

#include <functional>

#include "engine/masks/mask_pool.h"
#include "engine/schedule/scheduler.h"

namespace quire {

class MaskExchange {
 public:
  // `on_done` is called on another thread when a mask is made; it must not block.
  explicit MaskExchange(std::function<void()> on_done);

  // Hands out the guides whose masks are wanted, and brings back those whose masks are made. While
  // a step is running (`busy`), waits a moment for masks that were just wanted, so that their rows
  // are in the next plan: the device has work meanwhile. False if none came back. The scheduler's
  // thread.
  bool Run(bool busy, Scheduler& scheduler, SchedulerEvents& events);
  MaskStats stats(const Scheduler& scheduler) const;

 private:
  static constexpr int kThreads = 2;
  // Far below the time of a step of a served model, and enough for the masks of most grammars.
  static constexpr int64_t kPatienceNs = 200'000;

  MaskPool pool_;
};

}  // namespace quire
