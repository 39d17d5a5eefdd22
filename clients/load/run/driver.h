// Run: one load run from settings to a finished record.
//
// Connects, learns the model, sends the warm-up, then the planned requests at their times from a
// thread of its own, and reads the streams on gRPC's threads; blocks until every stream has ended.
#pragma once

#include <ostream>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/load/values/run_record.h"
#include "clients/load/values/settings.h"

namespace quire::load {

// An error only when nothing could be run: settings that contradict each other, an unreadable
// trace, no server, another kind of server, an unknown model. Everything that happens later is in
// the record: RunRecord::end, each request's outcome, health.
//
// A request to stop (ctrl-C) ends the sending and cancels the requests in flight. `progress` gets
// the live lines of Settings::progress; may be null with kNone. One run at a time in a process: the
// CPU share is the process's.
absl::StatusOr<RunRecord> Run(const Settings& settings, std::stop_token stop,
                              std::ostream* progress);

// A run for each of Settings::sweep_rates, then for rates growing by sweep_step, until one
// saturates the server: it finishes less than 0.9 of the offered rate, or its p99 is outside
// Settings::limits. The saturating run is the last. Ends early with a run that did not complete, or
// that is too short to be judged.
absl::StatusOr<std::vector<RunRecord>> RunSweep(const Settings& settings, std::stop_token stop,
                                                std::ostream* progress);

}  // namespace quire::load
