// Session: a conversation that outlives its requests. Its token ids are the truth; its KV is a
// cache with tiers, and losing KV costs time, never correctness. Values that cross threads.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/values/request.h"

namespace quire {

// Derived from where the KV of the session's tokens is, never stored beside it.
enum class SessionState : uint8_t {
  kActive,        // a turn is running
  kResidentIdle,  // all KV is on the device
  kOffloading,    // some KV is being copied to the host
  kHost,          // all KV is somewhere, some of it only on the host
  kRestoring,     // some KV is being copied to the device
  kDropped,       // some KV is in no tier: the next turn computes it again from the tokens
  kClosed,        // only in the last message of a Watch
};
const char* Name(SessionState state);  // "ACTIVE", "RESIDENT_IDLE", ...

// The options that a client sets when it creates or touches a session. Durations in seconds.
struct SessionOptions {
  double ttl_seconds = 0;                  // without a touch; 0: the server's default
  double idle_offload_after_seconds = -1;  // < 0: the server's default; 0: at once
  int32_t retain_priority = 0;             // [-100, 100]; the lowest loses its host copy first
};

// Where the KV of a session's tokens is, in tokens; a token counts as on the device and on the host
// when it is on both.
struct SessionTiers {
  int32_t device_tokens = 0;
  int32_t host_tokens = 0;
  int32_t absent_tokens = 0;  // in no tier; the last sampled token always is
};

struct SessionInfo {
  SessionName name;
  TenantId tenant = 0;
  SessionState state = SessionState::kDropped;
  SessionOptions options;  // effective
  int32_t position = 0;    // tokens
  uint64_t turns = 0;      // that were appended
  bool pinned = false;     // its KV stays on the device
  SessionTiers tiers;
  int64_t created_ns = 0;  // all times: steady clock
  int64_t used_ns = 0;     // the end of the last turn, or a touch
  int64_t expires_ns = kNoDeadline;
};

// The KV that a turn found for its session's tokens. For a request without a session: the KV that
// the prefix cache had for its prompt.
struct Residency {
  enum class Outcome : uint8_t {
    kNone,        // nothing could have been found: a first turn, or the cache was bypassed
    kDevice,      // all KV of these tokens was on the device
    kRestored,    // some came from the host, none was computed again
    kPartial,     // some was computed again
    kRecomputed,  // all was computed again
  };
  Outcome outcome = Outcome::kNone;
  int32_t device_tokens = 0;
  int32_t host_tokens = 0;
  int32_t recomputed_tokens = 0;  // known from before (of the session), and computed again
  int64_t restore_ns = 0;         // from the first copy's submission to the last one's end
};
const char* Name(Residency::Outcome outcome);

// For Engine::Cancel: the session of a turn keeps every token of the output.
inline constexpr int32_t kKeepAll = std::numeric_limits<int32_t>::max();

}  // namespace quire
