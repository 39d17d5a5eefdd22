// Run records made by hand or by a formula, for tests of the figures and the reports.
#pragma once

#include "clients/load/values/run_record.h"

namespace quire::load {

struct MadeTimes {
  int64_t planned_ms, sent_ms, first_ms, last_ms, end_ms;
};

// A request that ended kOk, of the given times and tokens.
RequestRecord MadeRequest(MadeTimes times, int prompt_tokens = 1, int output_tokens = 2);

// 1.502 s, nine requests that count (five ok, one each failed, cancelled, incomplete, pending), one
// warm-up and one slow reader; summary_test.cc has its figures. No limits, not detailed.
RunRecord HandMadeRun();

// A run against a server that is busy at 20 requests/s: Poisson arrivals at the given rate, waiting
// as in a queue, everything filled in; the same for the same arguments.
RunRecord PlausibleRun(double rate, double seconds);

}  // namespace quire::load
