// Transport: carries plans to the worker group and results back, `depth` steps in flight. The
// scheduler thread is its only caller. Results of all ranks are joined here: a step's result is
// visible once every rank has published it, and differing checksums are a fault.
//
// A group is healthy until it has a fault. Recover then says whether another group replaces it: the
// transport is recovering until that group is ready, and healthy afterwards. If no group will come,
// the fault is final.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/wake_event.h"
#include "engine/values/copy_plan.h"
#include "engine/values/mask_board.h"
#include "engine/values/step_plan.h"
#include "engine/values/step_result.h"

namespace quire {

class Transport {
 public:
  virtual ~Transport() = default;
  // `wake` is notified when the answer of Poll, PollCopy, recovering or fault may have changed. Set
  // once, before the first Publish and before other threads use `wake`; `wake` outlives this.
  virtual void SetWake(WakeEvent* wake) = 0;
  // The slot to build the next plan in; valid until Publish. Null while `depth` plans are in
  // flight, and while recovering.
  virtual StepPlan* NextSlot() = 0;
  // Sends the plan built in NextSlot's slot.
  virtual void Publish() = 0;
  // The oldest finished step, or null. Valid until Release or Recover.
  virtual const StepResult* Poll() = 0;
  // The same step's result as `rank` published it, with its own times; null beyond the last rank.
  // Requires that Poll has returned the step. Valid as long as Poll's answer.
  virtual const StepResult* ResultOf(int32_t rank) = 0;
  // Frees the slot of the oldest finished step.
  virtual void Release() = 0;
  // Plans published and not yet released.
  virtual int in_flight() const = 0;
  // Sends a copy job; PollCopy returns its ack, in any order between the two directions. Returns
  // false and sends nothing after a fault, while recovering, and without host memory.
  // Requires fewer than CopyJob::kMaxInFlight jobs of its direction in flight.
  virtual bool Submit(const CopyJob& job) = 0;
  // Takes the ack of the next copy job that all ranks have finished; false if there is none.
  virtual bool PollCopy(CopyAck& ack) = 0;
  // Pages of host memory, from the first, that all ranks have made ready for copies so far. A new
  // group begins again at 0. The scheduler's side limits it to the pages that exist.
  virtual int32_t ready_pages() const = 0;
  // Empty while healthy or recovering; otherwise one sentence that names what failed.
  virtual std::string fault() const = 0;
  // Steps on which the ranks disagreed, of this group and of all groups before it. Each is a fault
  // that names both ranks and their tokens.
  virtual uint64_t rank_mismatches() const { return 0; }
  // Where the late masks of plans go; null: no mask may come late. The board of a group dies with
  // it.
  virtual const MaskBoard* masks() const { return nullptr; }
  // After a fault: forgets the steps and copies in flight and the last result of Poll; all copying
  // has ended when it returns. True: a new group follows, without the state of the last one; its
  // first step is number 1. False: no group follows, and nothing may be published.
  virtual bool Recover() = 0;
  // True from Recover until the next group is ready, or until it is certain that none follows.
  virtual bool recovering() = 0;
};

}  // namespace quire
