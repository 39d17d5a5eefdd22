// SessionCodec: the Sessions service's messages to the engine's values and back, and the session
// store's refusals in the words of docs/errors.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/schedule/sessions/session_store.h"
#include "engine/values/session.h"

namespace quire {

struct StreamHost;
namespace v1 {
class Session;
class SessionOptions;
}  // namespace v1

// What clients may call a request or a session; INVALID_ARGUMENT naming `field`.
absl::Status CheckName(const std::string& field, const std::string& name);

// A name nobody can guess: 128 random bits.
SessionName MakeSessionName();

// The name a session is to have: what the client chose, or else one of ours.
absl::StatusOr<SessionName> DecodeNewName(const std::string& field, bool chosen,
                                          const std::string& name);

// UNAVAILABLE while the server drains: a session begun now would end with it.
absl::Status CheckTakesSessions(const StreamHost& host);
double MaxTtlSeconds(const StreamHost& host);

// INVALID_ARGUMENT naming the option that is out of its range.
absl::Status CheckOptions(const v1::SessionOptions& options, double max_ttl_seconds);
// The options that are given take the place of those in `base`.
SessionOptions Overlay(const v1::SessionOptions& given, SessionOptions base);

void EncodeSession(const SessionInfo& info, int64_t now_ns, v1::Session* session);

// A refusal of the store on its way to the client: with its reason, the field it is about when the
// request was wrong, and the true position when that is what was wrong.
absl::Status FromStore(const absl::Status& status, const std::string& field = "",
                       std::optional<int32_t> position = std::nullopt);
bool IsReason(const absl::Status& status, const std::string& reason);

}  // namespace quire
