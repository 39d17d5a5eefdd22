// GenerateResources: the objects that all generating calls share. Built by GrpcFront.
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "server/call/call_resources.h"
#include "server/call/drain_state.h"
#include "server/call/serving_model.h"

namespace quire {

class GuideMaker;
class StallWatch;
class StreamTable;
class TurnArchive;

// All members outlive the calls, and any thread may use them.
struct GenerateResources {
  const CallResources& calls;
  const ServingModel& model;
  Engine& engine;
  const DrainState& drain;
  StreamTable& streams;
  StallWatch& stalls;
  GuideMaker& guides;
  TurnArchive* const archive;  // null: no session directory
  // Differs between processes. The ids that the server makes up, and the seeds of requests without
  // one, are mixed from it.
  uint64_t key = 0;
};

}  // namespace quire
