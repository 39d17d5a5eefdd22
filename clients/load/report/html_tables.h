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
// TTFT by turn, and the place of the KV of histories. Empty without conversations.
std::string TurnsTable(const RunRecord& run);
// The ten most frequent errors with their counts. Empty without errors.
std::string ErrorTable(const RunRecord& run);
// The settings of the run.
std::string SettingsTable(const RunRecord& run);

}  // namespace quire::load
