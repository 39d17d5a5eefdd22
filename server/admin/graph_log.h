// Log lines about captured steps: one per batch size.
#pragma once

#include "engine/engine.h"
#include "engine/worker/rank/device_facts.h"

namespace quire {

// Call once the workers are ready: logs the cost of each capture at DEBUG and the sum at INFO.
void LogGraphs(const WorkerReport& report);
// Call at the end: logs how often each captured step was replayed.
void LogGraphUse(const EngineStats& stats);

}  // namespace quire
