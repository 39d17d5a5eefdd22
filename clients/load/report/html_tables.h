// The tables of a report page.
#pragma once

#include <string>
#include <vector>

#include "clients/load/figures/summary.h"
#include "clients/load/values/run_record.h"

namespace quire::load {

// Every latency, every percentile.
std::string PercentileTables(const Summary& summary);
// A row for each run of a sweep.
std::string PointsTable(const std::vector<RunRecord>& runs, const std::vector<Summary>& summaries);
// The numbers of the plots over time, at most 24 rows, folded away. Empty without a timeline.
std::string TimelineTable(const RunRecord& run);
// TTFT by turn, and where the KV of histories came from. Empty without conversations.
std::string TurnsTable(const RunRecord& run);
// What failed and how often, the ten most frequent. Empty when nothing did.
std::string ErrorTable(const RunRecord& run);
// How the run was made.
std::string SettingsTable(const RunRecord& run);

}  // namespace quire::load
