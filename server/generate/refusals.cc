// Fields and reasons.
#include "server/generate/refusals.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/cord.h"
#include "engine/tenant_gate.h"
#include "server/call/session_codec.h"
#include "server/call/status_codec.h"

namespace quire {

ContextLimit ContextLimitOf(const ServingModel& model) {
  return {.max_model_len = model.setup.limits.max_model_len,
          .kv_tokens = model.setup.memory.kv_tokens()};
}

absl::Status WithFieldPath(const absl::Status& status) {
  if (status.ok()) return status;
  const std::string message(status.message().data(), status.message().size());
  const size_t space = message.find(' ');
  const std::string field = message.substr(0, space);
  const std::string rest = space == std::string::npos ? message : message.substr(space + 1);
  if (field == "prompt") return InvalidField(field, rest);
  static constexpr const char* kStopFields[] = {
      "max_tokens", "min_tokens", "stop", "stop_token_ids", "loop_max_tokens", "loop_min_repeats"};
  const bool of_stop =
      std::find(std::begin(kStopFields), std::end(kStopFields), field) != std::end(kStopFields);
  return InvalidField((of_stop ? "stop." : "sampling.") + field, rest);
}

absl::Status TextRefusal(const std::string& field, const absl::Status& status) {
  if (status.ok()) return status;
  if (absl::IsCancelled(status)) return StatusOf(FinishReason::kCancelled);
  if (absl::IsDeadlineExceeded(status)) return StatusOf(FinishReason::kDeadline);
  return InvalidField(field, std::string(status.message().data(), status.message().size()));
}

namespace {

std::string Text(const absl::Status& status, const char* payload) {
  return std::string(status.GetPayload(payload).value_or(absl::Cord()));
}

absl::Status FromLimit(const absl::Status& status) {
  const std::string retry = Text(status, kLimitRetrySeconds);
  const std::string name = Text(status, kLimitName), value = Text(status, kLimitValue);
  absl::Status refusal = Refusal(status.code(), "TENANT_LIMIT",
                                 std::string(status.message().data(), status.message().size()),
                                 retry.empty() ? 0 : std::stod(retry));
  AddFact("limit", name, &refusal);
  AddFact("value", value, &refusal);
  AddQuota(name + " of " + value, &refusal);
  return refusal;
}

absl::Status FromPrediction(const absl::Status& status) {
  absl::Status refusal = Refusal(status.code(), "DEADLINE_UNREACHABLE",
                                 std::string(status.message().data(), status.message().size()));
  AddFact("predicted_ttft_ms", Text(status, kPredictedTtftMs), &refusal);
  return refusal;
}

}  // namespace

absl::Status FromEngine(const absl::Status& status, const DrainState& drain, const Engine& engine) {
  // Only a text can turn out empty when the turn is opened: ids and chats are checked before.
  if (IsReason(status, "EMPTY_PROMPT")) {
    return InvalidField("text", "the prompt is empty: it yields no token");
  }
  if (status.GetPayload(kSessionReason).has_value()) return FromSessions(status);
  if (absl::IsInvalidArgument(status)) {
    // Engine::Submit names no field when a token is outside the vocabulary.
    const std::string message(status.message().data(), status.message().size());
    return message.starts_with("token id") ? InvalidField("prompt", message)
                                           : WithFieldPath(status);
  }
  if (status.GetPayload(kLimitName).has_value()) return FromLimit(status);
  if (status.GetPayload(kPredictedTtftMs).has_value()) return FromPrediction(status);
  const char* reason = "QUEUE_FULL";
  if (drain.draining()) {
    reason = "DRAINING";
  } else if (!engine.Stats().fault.empty()) {
    reason = "ENGINE_FAULT";
  }
  return Refusal(status.code(), reason,
                 std::string(status.message().data(), status.message().size()), 1);
}

}  // namespace quire
