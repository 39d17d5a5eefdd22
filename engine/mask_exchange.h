// MaskExchange: passes guides between the scheduler and the threads that make masks, so that masks
// are made while the steps in flight run. Bounds how long a step may wait for one.
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

  // The scheduler's thread makes all calls. A step has ended, `step_ns` after its launch.
  void OnStepEnd(int64_t step_ns, int64_t now_ns);
  // Hands out the guides whose masks are wanted, and brings back those whose masks are made. Where
  // masks may not come late (`board` is null), waits a moment of the step that runs, if one does,
  // for those that were just wanted, so that their rows are in the next plan: the device has work
  // meanwhile. False if none came back.
  bool Run(bool step_runs, const MaskBoard* board, Scheduler& scheduler, SchedulerEvents& events);
  // Withholds the masks that hold up the oldest step in flight, which was published at
  // `published_ns`. Returns when to call it again, at the latest; kNoDeadline: it waits for none.
  int64_t WithholdLate(int64_t published_ns, int64_t now_ns, Scheduler& scheduler);
  MaskStats stats(const Scheduler& scheduler) const;

 private:
  // Of the running step's time; the next plan must be there before it ends.
  static constexpr int64_t kPatienceShare = 8;
  static constexpr int64_t kMaxPatienceNs = 1'000'000;
  // A step that was launched behind another takes about half of its time by itself. After that it
  // may be waiting for masks alone.
  static constexpr int64_t kLatenessShare = 2;
  static constexpr int64_t kMinLatenessNs = 500'000;
  // A step with a long prompt says nothing of those behind it.
  static constexpr int64_t kMaxLatenessNs = 20'000'000;

  MaskPool pool_;
  int64_t step_ns_ = 0;      // of the last step that waited for no mask until it was withheld
  int64_t ended_ns_ = 0;     // of the last step
  bool withheld_ = false;    // masks of the step that runs
  bool step_ended_ = false;  // since the last Run
};

}  // namespace quire
