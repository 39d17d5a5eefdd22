// Curves: the data of a report's plots, derived from run records.
#pragma once

#include <utility>
#include <vector>

#include "clients/load/figures/summary.h"
#include "clients/load/values/run_record.h"

namespace quire::load {

using Curve = std::vector<std::pair<double, double>>;

enum class Latency { kTtft, kTpot, kItl, kE2e };

// Cumulative distribution of a latency over the requests that count: pairs of milliseconds and
// percent, rising; passes through the summary's percentiles. Empty when there is no value.
Curve Distribution(const RunRecord& run, Latency latency);

// Means over a stretch of the run. The timeline is cut into stretches of equal length, in whole
// seconds.
struct Stretch {
  double seconds = 0;  // its middle, from the start of the run
  double length = 0;
  double tokens_per_second = 0, sent_per_second = 0, finished_per_second = 0, failed_per_second = 0;
  double requests_in_flight = 0;
  // Prompt and output tokens of the requests in flight at the middle, output taken as arriving
  // evenly between a request's first and last tokens.
  double tokens_in_flight = 0;
  double kv_percent, running, waiting;  // NaN when not scraped
};
// At most `most` of them.
std::vector<Stretch> Stretches(const RunRecord& run, int most);

}  // namespace quire::load
