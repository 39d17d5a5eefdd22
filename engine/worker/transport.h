// Transport: carries plans to the worker group and results back, `depth` steps in flight. The
// scheduler thread is its only caller. Results of all ranks are joined here: a step's result is
// visible once every rank has published it, and differing checksums are a fault.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/wake_event.h"
#include "engine/step_plan.h"

namespace quire {

class Transport {
 public:
  virtual ~Transport() = default;
  // Notified whenever Poll or fault may have news. Set once, before the first Publish; outlives
  // this.
  virtual void SetWake(WakeEvent* wake) = 0;
  // The slot to build the next plan in; valid until Publish. Null while `depth` plans are in
  // flight.
  virtual StepPlan* NextSlot() = 0;
  // Sends the plan built in NextSlot's slot.
  virtual void Publish() = 0;
  // The oldest finished step, or null. Valid until Release.
  virtual const StepResult* Poll() = 0;
  // Gives the slot of the oldest finished step back.
  virtual void Release() = 0;
  // Plans published and not yet released.
  virtual int in_flight() const = 0;
  // Empty while healthy; otherwise one sentence on what died. Sticky.
  virtual std::string fault() const = 0;
};

}  // namespace quire
