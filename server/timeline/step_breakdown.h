// The mean time of a step by parts, between two looks at the engine's counters.
#pragma once

#include "engine/engine.h"

namespace quire {
namespace v1 {
class StepBreakdown;
}

// `before` and `after` are of one engine, `seconds` apart.
void FillBreakdown(const EngineStats& before, const EngineStats& after, double seconds,
                   v1::StepBreakdown* breakdown);

}  // namespace quire
