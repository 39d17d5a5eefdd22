// What the log says of captured steps: one line for each batch size.
#pragma once

#include "engine/engine.h"
#include "engine/worker/rank/device_facts.h"

namespace quire {

// Once the workers are ready: what each capture cost; all together at the level of info.
void LogGraphs(const WorkerReport& report);
// At the end: how often each was replayed.
void LogGraphUse(const EngineStats& stats);

}  // namespace quire
