// quire.v1.Control: facts about the server, its load, and how to end requests and drain it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/call/call_resources.h"
#include "server/call/drain_state.h"
#include "server/call/raw_service.h"
#include "server/call/serving_model.h"

namespace quire {

class StreamTable;
struct SessionResources;
namespace v1 {
class MemoryPlan;
}

// The objects that Control reports on, and through which it ends requests.
struct ControlResources {
  const CallResources& calls;
  const ServingModel& model;
  const Engine& engine;
  const DrainState& drain;
  StreamTable& streams;
  SessionResources& sessions;  // its thread runs Trace, and answers that wait for the scheduler
};

// The front's own part of Control. Both functions may be called by any thread.
struct ControlHooks {
  std::function<void(bool exit_when_idle)> drain;
  // Whether the front was draining; FAILED_PRECONDITION once the process is ending.
  std::function<absl::StatusOr<bool>()> undrain;
  int64_t started_ns = 0;
  std::string instance_id;
};

void FillMemoryPlan(const MemoryPlan& plan, v1::MemoryPlan* out);

// The objects in `resources` outlive the service.
std::unique_ptr<RawService> MakeControlService(const ControlResources& resources,
                                               ControlHooks hooks);

}  // namespace quire
