// SessionResources: the objects that all calls of the Sessions service share. Built by GrpcFront.
#pragma once

#include "engine/engine.h"
#include "engine/worker/shm/host_arena.h"
#include "server/call/call_resources.h"
#include "server/call/drain_state.h"
#include "server/call/serving_model.h"
#include "server/call/tenant_quota.h"

namespace quire {

class SerialThread;
class SessionWatches;
class StreamTable;

// All members outlive the calls, and any thread may use them unless they say otherwise.
struct SessionResources {
  const CallResources& calls;
  const ServingModel& model;
  Engine& engine;
  const DrainState& drain;  // new sessions would end with the server
  StreamTable& streams;     // counts exports and imports among the open calls
  TenantQuota& transfers;   // exports and imports under way
  SerialThread& thread;     // the session thread: owns the state of all session calls
  SessionWatches& watches;
  const HostArenas arenas;  // by rank; empty: no host memory
  bool tracing = false;     // a Trace call is open; the session thread's

  double max_ttl_seconds() const { return model.setup.scheduler.sessions.max_ttl_seconds; }
};

}  // namespace quire
