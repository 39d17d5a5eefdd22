// Draws a request that has ended into the timeline: its queue, restore, prefill and decode.
#pragma once

#include <string>

#include "engine/values/output_sink.h"

namespace quire {

// Does nothing while the timeline is off. Any thread.
void DrawRequest(const std::string& request_id, const FinishEvent& event);

}  // namespace quire
