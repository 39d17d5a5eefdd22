// The figures of a load report.
#include "server/orca/load_report.h"

#include <algorithm>

namespace quire {

xds::data::orca::v3::OrcaLoadReport LoadReportOf(const EngineStats& stats, int32_t max_rows,
                                                 std::optional<double> predicted_seconds) {
  const SchedulerLoad& load = stats.load;
  const double blocks = std::max(load.total_blocks, 1);
  const double kv_usage = std::clamp(1.0 - load.free_blocks / blocks, 0.0, 1.0);
  const double rows = std::max(max_rows, 1);
  xds::data::orca::v3::OrcaLoadReport report;
  report.set_mem_utilization(kv_usage);
  report.set_application_utilization(std::clamp(load.running / rows, 0.0, 1.0));
  (*report.mutable_utilization())["kv_cache"] = kv_usage;
  auto& named = *report.mutable_named_metrics();
  named["kv_cache_usage_perc"] = kv_usage;
  named["num_requests_running"] = load.running;
  named["num_requests_waiting"] = load.waiting;
  if (predicted_seconds.has_value()) named["predicted_first_token_seconds"] = *predicted_seconds;
  return report;
}

}  // namespace quire
