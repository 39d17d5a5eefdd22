// Transport: carries plans to the worker group and results back, `depth` steps in flight. The
// scheduler thread is its only caller. Results of all ranks are joined here: a step's result is
// visible once every rank has published it, and differing checksums are a fault.
//
// A group is healthy, until it has a fault. Recover then says whether another one takes its place:
// the transport is recovering until that one is there, and healthy again. If none will come the
// fault stays for ever.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/wake_event.h"
#include "engine/values/copy_plan.h"
#include "engine/values/step_plan.h"

namespace quire {

class Transport {
 public:
  virtual ~Transport() = default;
  // Notified whenever Poll, PollCopy, recovering or fault may have news. Set once, before the first
  // Publish and before other threads know of `wake`; outlives this.
  virtual void SetWake(WakeEvent* wake) = 0;
  // The slot to build the next plan in; valid until Publish. Null while `depth` plans are in
  // flight, and while recovering.
  virtual StepPlan* NextSlot() = 0;
  // Sends the plan built in NextSlot's slot.
  virtual void Publish() = 0;
  // The oldest finished step, or null. Valid until Release or Recover.
  virtual const StepResult* Poll() = 0;
  // Gives the slot of the oldest finished step back.
  virtual void Release() = 0;
  // Plans published and not yet released.
  virtual int in_flight() const = 0;
  // Sends a copy job; its ack follows from PollCopy, in any order between the directions. False,
  // and nothing sent, after a fault, while recovering and where there is no host memory to copy to.
  // Requires fewer than CopyJob::kMaxInFlight jobs of its direction in flight.
  virtual bool Submit(const CopyJob& job) = 0;
  // Takes the next finished copy job of all ranks; false if there is none.
  virtual bool PollCopy(CopyAck& ack) = 0;
  // Empty while healthy or recovering; otherwise one sentence on what died.
  virtual std::string fault() const = 0;
  // After a fault: forgets the steps and copies in flight, and what Poll returned last; nobody
  // copies any more when it returns. True: a group that knows nothing of what the last one knew
  // will come; its first step is number 1. False: none will, and nothing is published any more.
  virtual bool Recover() = 0;
  // True from Recover until the next group is there, or until it is certain that none will be.
  virtual bool recovering() = 0;
};

}  // namespace quire
