// JobResources: the objects that all calls of the Jobs service share. Built by GrpcFront.
#pragma once

#include "server/call/call_resources.h"
#include "server/call/drain_state.h"

namespace quire {

class JobRunner;

// All members outlive the calls.
struct JobResources {
  const CallResources& calls;
  const DrainState& drain;
  JobRunner* const runner;  // null: no session directory
};

}  // namespace quire
