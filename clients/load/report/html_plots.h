// The plots of a report page, as <figure> elements.
#pragma once

#include <string>
#include <vector>

#include "clients/load/figures/summary.h"
#include "clients/load/values/run_record.h"

namespace quire::load {

// Cumulative distributions of the four latencies; of several runs, a curve each for at most six.
std::string LatencyPlots(const std::vector<RunRecord>& runs, const std::vector<Summary>& summaries);

// Plots over time: tokens, requests, requests in flight, and the server's gauges where they were
// scraped. Empty without a timeline.
std::string TimePlots(const RunRecord& run);

// Goodput, throughput and tail latencies over the offered rate (or the concurrency, of closed
// loops). Empty unless two runs or more can be placed on such an axis.
std::string SweepPlots(const std::vector<RunRecord>& runs, const std::vector<Summary>& summaries);

// "8 req/s", "32 at once": the name of a run within its sweep.
std::string PointName(const RunInfo& info);

}  // namespace quire::load
