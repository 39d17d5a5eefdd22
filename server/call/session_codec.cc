// Ranges of options, seconds and instants, and refusals.
#include "server/call/session_codec.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/cord.h"
#include "engine/base/status_macros.h"
#include "quire/v1/sessions.pb.h"
#include "server/call/status_codec.h"

namespace quire {
namespace {

constexpr size_t kMaxNameBytes = 128;
constexpr double kMaxIdleSeconds = 86400;
constexpr int32_t kMaxRetainPriority = 100;

std::string Number(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

double SecondsBetween(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(std::max<int64_t>(to_ns - from_ns, 0)) * 1e-9;
}

v1::SessionState WireState(SessionState state) {
  switch (state) {
    case SessionState::kActive: return v1::SESSION_STATE_ACTIVE;
    case SessionState::kResidentIdle: return v1::SESSION_STATE_RESIDENT_IDLE;
    case SessionState::kOffloading: return v1::SESSION_STATE_OFFLOADING;
    case SessionState::kHost: return v1::SESSION_STATE_HOST;
    case SessionState::kRestoring: return v1::SESSION_STATE_RESTORING;
    case SessionState::kDropped: return v1::SESSION_STATE_DROPPED;
    case SessionState::kClosed: return v1::SESSION_STATE_CLOSED;
  }
  return v1::SESSION_STATE_UNSPECIFIED;
}

}  // namespace

absl::Status CheckName(const std::string& field, const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == ':' || c == '-';
  };
  if (name.empty()) return InvalidField(field, "is empty");
  if (name.size() > kMaxNameBytes || !std::all_of(name.begin(), name.end(), allowed)) {
    return InvalidField(field, "must be at most 128 bytes of [A-Za-z0-9._:-]");
  }
  return absl::OkStatus();
}

SessionName MakeSessionName() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::random_device device;
  SessionName name = "s-";
  for (int word = 0; word < 4; ++word) {
    const uint32_t bits = device();
    for (int shift = 28; shift >= 0; shift -= 4) name += kDigits[(bits >> shift) & 15];
  }
  return name;
}

absl::StatusOr<SessionName> DecodeNewName(const std::string& field, bool chosen,
                                          const std::string& name) {
  if (!chosen) return MakeSessionName();
  RETURN_IF_ERROR(CheckName(field, name));
  return name;
}

absl::Status CheckOptions(const v1::SessionOptions& options, double max_ttl_seconds) {
  // Written so that what is not a number fails too.
  if (options.has_ttl_seconds() &&
      !(options.ttl_seconds() > 0 && options.ttl_seconds() <= max_ttl_seconds)) {
    return InvalidField("options.ttl_seconds", "must be above 0 and at most " +
                                                   Number(max_ttl_seconds) + ", not " +
                                                   Number(options.ttl_seconds()));
  }
  if (options.has_idle_offload_after_seconds() &&
      !(options.idle_offload_after_seconds() >= 0 &&
        options.idle_offload_after_seconds() <= kMaxIdleSeconds)) {
    return InvalidField(
        "options.idle_offload_after_seconds",
        "must be between 0 and 86400, not " + Number(options.idle_offload_after_seconds()));
  }
  if (options.retain_priority() < -kMaxRetainPriority ||
      options.retain_priority() > kMaxRetainPriority) {
    return InvalidField("options.retain_priority", "must be between -100 and 100, not " +
                                                       std::to_string(options.retain_priority()));
  }
  return absl::OkStatus();
}

SessionOptions DecodeOptions(const v1::SessionOptions& options) {
  SessionOptions out;
  if (options.has_ttl_seconds()) out.ttl_seconds = options.ttl_seconds();
  if (options.has_idle_offload_after_seconds()) {
    out.idle_offload_after_seconds = options.idle_offload_after_seconds();
  }
  if (options.has_retain_priority()) out.retain_priority = options.retain_priority();
  return out;
}

SessionOperation::Touch DecodeTouch(const v1::SessionOptions& options) {
  SessionOperation::Touch out;
  if (options.has_ttl_seconds()) out.ttl_seconds = options.ttl_seconds();
  if (options.has_idle_offload_after_seconds()) {
    out.idle_offload_after_seconds = options.idle_offload_after_seconds();
  }
  if (options.has_retain_priority()) out.retain_priority = options.retain_priority();
  return out;
}

void EncodeSession(const SessionInfo& info, int64_t now_ns, v1::Session* session) {
  session->set_session_id(info.name);
  session->set_state(WireState(info.state));
  session->set_position(static_cast<uint32_t>(info.position));
  session->set_turns(info.turns);
  v1::SessionOptions* options = session->mutable_options();
  options->set_ttl_seconds(info.options.ttl_seconds);
  options->set_idle_offload_after_seconds(info.options.idle_offload_after_seconds);
  options->set_retain_priority(info.options.retain_priority);
  session->set_pinned(info.pinned);
  session->set_device_tokens(static_cast<uint32_t>(info.tiers.device_tokens));
  session->set_host_tokens(static_cast<uint32_t>(info.tiers.host_tokens));
  session->set_absent_tokens(static_cast<uint32_t>(info.tiers.absent_tokens));
  session->set_idle_seconds(SecondsBetween(info.used_ns, now_ns));
  if (info.expires_ns != kNoDeadline) {
    session->set_expires_in_seconds(SecondsBetween(now_ns, info.expires_ns));
  }
  session->set_age_seconds(SecondsBetween(info.created_ns, now_ns));
}

absl::Status FromSessions(const absl::Status& status, const std::string& field) {
  if (status.ok()) return status;
  const std::string message(status.message().data(), status.message().size());
  absl::Status out = !field.empty() && absl::IsInvalidArgument(status)
                         ? InvalidField(field, message)
                         : absl::Status(status.code(), message);
  if (const auto reason = status.GetPayload(kSessionReason)) AddReason(std::string(*reason), &out);
  if (const auto position = status.GetPayload(kSessionPosition)) {
    AddFact("position", std::string(*position), &out);
  }
  return out;
}

bool IsReason(const absl::Status& status, const std::string& reason) {
  const auto payload = status.GetPayload(kSessionReason);
  return payload.has_value() && *payload == reason;
}

}  // namespace quire
