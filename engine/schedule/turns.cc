// The transaction of a turn: opens it with the session's tokens, then commits or aborts it.
#include "engine/schedule/turns.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "engine/base/status_macros.h"
#include "engine/schedule/sessions/session_store.h"
#include "kernels/check.h"

namespace quire {

Turns::Turns(const SchedulerConfig& config, LiveSequences& sequences)
    : limit_{.max_model_len = config.max_model_len,
             .kv_tokens = int64_t{config.num_blocks - 1} * config.block_size},
      max_queued_tokens_(config.max_num_queued_tokens),
      sequences_(sequences),
      sessions_(sequences.kv().sessions()) {}

absl::StatusOr<uint64_t> Turns::Open(Request& request, int64_t now_ns) {
  const TurnRequest& turn = *request.session_turn;
  const auto tokens = [&] {
    return sessions_.TokensForTurn(request.tenant, turn.session, turn.expected_position);
  };
  absl::StatusOr<std::span<const int32_t>> found = tokens();
  const bool creates = turn.create_session && absl::IsNotFound(found.status());
  if (creates) {
    RETURN_IF_ERROR(sessions_.Create(request.tenant, turn.session, {}, now_ns).status());
    found = tokens();
  }
  absl::Status status = found.status();
  if (status.ok()) status = Complete(request, *found);
  if (!status.ok()) {
    if (creates) CHECK(sessions_.Close(request.tenant, turn.session).ok());
    return status;
  }
  // Only now: a refused turn changes nothing, so a late cut of the turn before it still finds it.
  return *sessions_.BeginTurn(request.tenant, turn.session, turn.expected_position, now_ns,
                              request.id);
}

absl::Status Turns::Complete(Request& request, std::span<const int32_t> session_tokens) const {
  const TurnRequest& turn = *request.session_turn;
  std::vector<int32_t>& prompt = request.prompt;
  if (session_tokens.empty()) {
    prompt.insert(prompt.begin(), turn.prefix.begin(), turn.prefix.end());
    prompt.insert(prompt.end(), turn.suffix.begin(), turn.suffix.end());
  }
  if (prompt.empty()) {
    absl::Status status = absl::InvalidArgumentError("prompt is empty: it yields no token");
    status.SetPayload(kSessionReason, absl::Cord("EMPTY_PROMPT"));
    return status;
  }
  if (!turn.whole_conversation) {
    prompt.insert(prompt.begin(), session_tokens.begin(), session_tokens.end());
  }
  RETURN_IF_ERROR(FitToContext(limit_, request));
  return CheckQueue(request.tenant, static_cast<int64_t>(prompt.size()));
}

// As TenantGate checks other requests, whose length is known before they are queued.
absl::Status Turns::CheckQueue(TenantId tenant, int64_t prompt_tokens) const {
  const TenantAccounts& accounts = sequences_.accounts();
  const int64_t most = accounts.LimitsOf(tenant).max_queued_tokens;
  const int64_t own = accounts.WaitingTokens(tenant);
  if (most > 0 && own > 0 && own + prompt_tokens > most) {
    return TenantLimitReached(TenantLimit::kQueuedTokens, most, -1,
                              std::to_string(own) + " prompt tokens wait");
  }
  const RequestQueue& queue = sequences_.queue();
  const int64_t beyond = queue.num_tokens() + prompt_tokens - max_queued_tokens_;
  if (beyond <= 0) return absl::OkStatus();
  const bool within_part = accounts.IsWithinPart(tenant, own + prompt_tokens, max_queued_tokens_);
  if (within_part && beyond <= max_queued_tokens_) return absl::OkStatus();
  return QueueFull(static_cast<int64_t>(queue.size()), queue.num_tokens());
}

void Turns::Cut(RequestId request, int32_t num_output, int64_t now_ns) {
  sessions_.CutTurn(request, num_output, now_ns);
}

int32_t Turns::End(Sequence& sequence, int64_t now_ns) {
  CHECK_EQ(sequence.steps_in_flight, 0);
  SequenceKv& kv = sequences_.kv();
  const bool commits = IsRegularEnd(sequence.end);
  const int32_t output = std::min(sessions_.MaxOutput(sequence.turn), sequence.num_output());
  const int32_t position = sequence.num_prompt + output;
  // An aborted turn gives the tail back to its session as it was.
  const int32_t kv_tokens = commits ? std::min(position, sequence.proved) : sequence.tail_tokens;
  const SequenceKv::Left left = kv.LeaveToSession(sequence, kv_tokens);
  if (commits) {
    const std::span<const int32_t> tokens = kv.Known(sequence).first(position);
    sessions_.CommitTurn(sequence.turn, {tokens.begin(), tokens.end()}, left.node, now_ns,
                         sequence.num_prompt);
  } else {
    sessions_.AbortTurn(sequence.turn, kv_tokens > 0 ? left.node : kNoNode, now_ns);
  }
  kv.ReleaseTail(left);
  return commits ? position : 0;
}

}  // namespace quire
