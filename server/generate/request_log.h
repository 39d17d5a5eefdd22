// The request log: one line at INFO for each finished request, and at most one a second for refused
// ones. Lines hold ids, counts, times and codes; never text or token ids. Any thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "engine/values/output_sink.h"
#include "server/call/front_options.h"
#include "server/identity/caller.h"

namespace quire {

// A request that the engine accepted and has ended. References are read during the call only.
struct FinishedRequest {
  const std::string& request_id;
  const Caller& caller;
  const std::string& session_id;  // empty: not a turn of a session
  const std::string& trace_id;    // empty: not traced
  const FinishEvent& event;
  // The status that the stream already ends with; OK: the event's reason decides.
  const absl::Status& status;
};

// Does nothing if options.log_requests is false, as LogRefused.
void LogFinished(const FrontOptions& options, const FinishedRequest& request);
// A request that the engine has not accepted.
void LogRefused(const FrontOptions& options, const Caller& caller, const absl::Status& status);

}  // namespace quire
