// Turns: opens, commits and aborts the turns of sessions; the one place where a request and its
// session meet. One thread.
//
// A turn is a transaction. Open makes the session busy and completes the request's prompt with the
// session's tokens. End appends the prompt and the output to the session if the request ended
// regularly (IsRegularEnd), and otherwise leaves the session as it was: the turn can be sent again.
// Between the two the session refuses every other change.
//
// Errors of Open: those of a session (engine/values/session_operation.h); INVALID_ARGUMENT as from
// FitToContext; UNAVAILABLE when the complete prompt does not fit the queue; RESOURCE_EXHAUSTED
// when it does not fit the tenant's max_queued_tokens (TenantLimitReached).
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/schedule/live_sequences.h"
#include "engine/values/admission.h"
#include "engine/values/scheduler_config.h"

namespace quire {

class Turns {
 public:
  // `sequences` outlives this.
  Turns(const SchedulerConfig& config, LiveSequences& sequences);

  // Requires request.session_turn. Returns the turn's number, for Sequence::turn; the request then
  // fits the context and the pool. A refusal changes nothing: a session that was created for the
  // turn is gone again.
  absl::StatusOr<uint64_t> Open(Request& request, int64_t now_ns);
  // The client was given the first `num_output` tokens of a turn's output: the session keeps no
  // more. Valid while the turn runs and behind its end, until the session's next change. Ignores
  // the id of any other request.
  void Cut(RequestId request, int32_t num_output, int64_t now_ns);
  // Commits or aborts the turn of a finishing sequence, by its end. Requires that no step in flight
  // knows the sequence. Returns the session's new position, 0 if the turn is aborted.
  int32_t End(Sequence& sequence, int64_t now_ns);

 private:
  absl::Status Complete(Request& request, std::span<const int32_t> session_tokens) const;
  absl::Status CheckQueue(TenantId tenant, int64_t prompt_tokens) const;

  const ContextLimit limit_;
  const int64_t max_queued_tokens_;
  LiveSequences& sequences_;
  SessionStore& sessions_;
};

}  // namespace quire
