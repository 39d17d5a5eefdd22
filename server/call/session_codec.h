// SessionCodec: the Sessions service's messages to the engine's values and back, and the engine's
// refusals of session operations in the words of docs/errors.md.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/values/session.h"
#include "engine/values/session_operation.h"

namespace quire {

namespace v1 {
class Session;
class SessionOptions;
}  // namespace v1

// Checks a client's name for a request or a session; INVALID_ARGUMENT names `field`.
absl::Status CheckName(const std::string& field, const std::string& name);

// A name that cannot be guessed: 128 random bits.
SessionName MakeSessionName();

// The name of a new session: the client's choice, or else one of ours.
absl::StatusOr<SessionName> DecodeNewName(const std::string& field, bool chosen,
                                          const std::string& name);

// INVALID_ARGUMENT naming the option that is out of its range.
absl::Status CheckOptions(const v1::SessionOptions& options, double max_ttl_seconds);
// Requires options in range. Options that the client left out stay as they are by default.
SessionOptions DecodeOptions(const v1::SessionOptions& options);
SessionOperation::Touch DecodeTouch(const v1::SessionOptions& options);

void EncodeSession(const SessionInfo& info, int64_t now_ns, v1::Session* session);

// Turns a refusal of the engine's sessions into the client's status. It has the reason, `field` if
// the argument was wrong, and the true position if the position was wrong.
absl::Status FromSessions(const absl::Status& status, const std::string& field = "");
// Whether the engine refused for this reason (kSessionReason).
bool IsReason(const absl::Status& status, const std::string& reason);

}  // namespace quire
