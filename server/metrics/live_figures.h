// LiveFigures: what the status page and Control.GetMemory show beside the engine's counts. Part of
// ServerMetrics.
#pragma once

#include "server/metrics/history.h"
#include "server/metrics/latency_sketch.h"
#include "server/metrics/latest_view.h"

namespace quire {

struct LiveFigures {
  LatencySketch first_token;  // from a request's arrival
  LatencySketch inter_token;
  History history;
  LatestView view;
};

}  // namespace quire
