// Writes the log lines about captured steps.
#include "server/admin/graph_log.h"

#include "engine/base/log.h"

namespace quire {

void LogGraphs(const WorkerReport& report) {
  double capture_ms = 0;
  int64_t bytes = 0;
  for (const WorkerReport::Graph& graph : report.graphs) {
    capture_ms += graph.capture_ms;
    bytes += graph.bytes;
    Log(Severity::kDebug, "graph captured",
        {{"size", graph.size},
         {"nodes", graph.nodes},
         {"capture_ms", graph.capture_ms},
         {"bytes", graph.bytes}});
  }
  if (report.graphs.empty()) return;
  Log(Severity::kInfo, "graphs captured",
      {{"sizes", report.graphs.size()}, {"capture_ms", capture_ms}, {"bytes", bytes}});
}

void LogGraphUse(const EngineStats& stats) {
  for (const GraphUse& graph : stats.graphs) {
    if (graph.replays == 0) continue;
    Log(Severity::kInfo, "graph used",
        {{"size", graph.size}, {"replays", graph.replays}, {"padded_share", graph.padded_share()}});
  }
}

}  // namespace quire
