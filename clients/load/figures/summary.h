// Summary: the figures of a run, each by the field's definition (that of vLLM's serve benchmark
// where it has one), computed from a RunRecord. Reports print these figures and compute none of
// their own.
//
// Requests count when they are no warm-up and did not read slowly on purpose. Latencies are of
// requests that ended kOk. A request that ended kOk without a token has neither TTFT nor TPOT; its
// E2E is the time until its status.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "clients/load/values/run_record.h"

namespace quire::load {

inline constexpr std::array<double, 6> kPercentiles = {50, 90, 95, 97, 99, 99.9};

// Milliseconds; all zero when there is no value.
struct LatencyFigures {
  int64_t count = 0;
  double mean = 0, median = 0, std = 0, min = 0, max = 0;
  std::array<double, kPercentiles.size()> percentile{};
};

struct Summary {
  int32_t planned = 0;  // requests that count, with any outcome
  int32_t completed = 0;
  int32_t failed = 0;
  int32_t cancelled = 0;
  int32_t incomplete = 0;
  int32_t broken_sequences = 0;  // streams with lost or repeated tokens, of any request: must be 0
  double duration_seconds = 0;
  int64_t input_tokens = 0;             // of completed requests
  int64_t output_tokens = 0;            // of completed requests, the first token included
  int64_t received_tokens = 0;          // of all requests, also those that did not complete
  double offered_throughput = 0;        // requests/s as planned: (n - 1) / last - first arrival
  double request_throughput = 0;        // completed / duration
  double output_throughput = 0;         // output tokens / duration
  double received_throughput = 0;       // received tokens / duration
  double total_throughput = 0;          // input and output tokens / duration
  double steady_output_throughput = 0;  // over the middle 80 % of finish times, if they lie apart
  double peak_output_tokens_per_second = 0;  // best second of the timeline
  int32_t peak_concurrency = 0;
  double mean_concurrency = 0;  // sum of E2E / duration
  // Requests a second that met every limit of RunInfo::limits; negative without limits. A request
  // of one token has TPOT 0.
  double goodput = -1;

  LatencyFigures ttft;        // first_ns - sent_ns
  LatencyFigures ttft_sched;  // first_ns - planned_ns: includes the lag of the client
  // (last_ns - first_ns) / (output_tokens - 1); requests of one token left out
  LatencyFigures tpot;
  LatencyFigures itl;  // gaps between frames, pooled
  LatencyFigures itl_per_token;
  LatencyFigures e2e;         // last_ns - sent_ns
  LatencyFigures e2e_sched;   // last_ns - planned_ns
  LatencyFigures queue;       // the server's own queue time
  LatencyFigures client_lag;  // sent_ns - planned_ns
};

Summary Summarize(const RunRecord& run);

// Of values in any order.
LatencyFigures FiguresOf(std::vector<double> ms);

// One request's share in the figures above, for plots and lists of requests; in milliseconds.
bool Counts(const RequestRecord& request);
double TtftMs(const RequestRecord& request);  // 0 without a token
double TpotMs(const RequestRecord& request);  // 0 for up to one token
double E2eMs(const RequestRecord& request);

// numpy.percentile of values in ascending order, at least one.
double PercentileOfSorted(const std::vector<double>& sorted, double percent);

}  // namespace quire::load
