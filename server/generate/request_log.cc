// Formats the lines. The rate of refused requests is limited because clients can send any number.
#include "server/generate/request_log.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "server/call/log_rate_limiter.h"
#include "server/call/status_codec.h"

namespace quire {
namespace {

// 0 if `at_ns` never came.
double SecondsUntil(int64_t at_ns, int64_t from_ns) {
  return at_ns == 0 ? 0 : static_cast<double>(at_ns - from_ns) * 1e-9;
}

}  // namespace

void LogFinished(const FrontOptions& options, const FinishedRequest& request) {
  if (!options.log_requests) return;
  const FinishEvent& event = request.event;
  const absl::Status status = request.status.ok() ? StatusOf(event.reason) : request.status;
  const RequestTimings& at = event.timings;
  // A request that never ran was queued until its end.
  const int64_t queued_until_ns = at.admitted_ns == 0 ? at.finished_ns : at.admitted_ns;
  Log(Severity::kInfo, "request finished",
      {{"request_id", request.request_id},
       {"tenant", request.caller.tenant_name},
       {"key", request.caller.key_id},
       {"session", request.session_id},
       {"trace_id", request.trace_id},
       {"prompt_tokens", event.usage.prompt_tokens},
       {"cached_tokens", event.usage.cached_tokens},
       {"completion_tokens", event.usage.completion_tokens},
       {"residency", Name(event.residency.outcome)},
       {"restore_seconds", static_cast<double>(event.residency.restore_ns) * 1e-9},
       {"queue_seconds", SecondsUntil(queued_until_ns, at.arrival_ns)},
       {"first_token_seconds", SecondsUntil(at.first_token_ns, at.arrival_ns)},
       {"total_seconds", SecondsUntil(at.finished_ns, at.arrival_ns)},
       {"reason", Name(event.reason)},
       {"code", absl::StatusCodeToString(status.code())}});
}

void LogRefused(const FrontOptions& options, const Caller& caller, const absl::Status& status) {
  static LogRateLimiter limiter;
  if (!options.log_requests) return;
  const int64_t count = limiter.Count(SteadyNowNs());
  if (count == 0) return;
  Log(Severity::kInfo, "requests refused",
      {{"count", count},
       {"last_tenant", caller.tenant_name},
       {"last_key", caller.key_id},
       {"last_code", absl::StatusCodeToString(status.code())},
       {"last_reason", ReasonOf(status)}});
}

}  // namespace quire
