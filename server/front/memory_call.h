// Control.GetMemory: the one call of Control that asks the scheduler.
#pragma once

#include "server/call/raw_service.h"
#include "server/front/control_service.h"

namespace quire {

// The objects in `resources` outlive the calls.
RawService::Unary MemoryCall(const ControlResources& resources);

}  // namespace quire
