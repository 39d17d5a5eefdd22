// TenantLimits: what one tenant may use, and its weight among the others. Plain values from the
// server's settings (a key file, flags); Engine::SetTenants takes them, also while it runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/values/request.h"

namespace quire {

// Each limit applies beside the server's own (SchedulerConfig, EngineLimits); the smaller one
// decides. 0: no limit of the tenant's own.
struct TenantLimits {
  // Tenants that wait for the same priority share computed tokens, rows and KV blocks by weight.
  double weight = 1;
  int32_t max_running_requests = 0;  // more wait in the queue
  int32_t max_queued_requests = 0;   // more are refused
  int64_t max_queued_tokens = 0;     // prompt tokens that wait; more are refused
  // Prompt and generated tokens. A bucket of one minute's tokens that refills evenly. A request
  // takes the tokens it carries when it is accepted, whether or not their KV is found later, and
  // each generated token when it is delivered. A turn of a session takes its new tokens only.
  // Refused: a request for which the bucket does not hold enough (a full bucket always does).
  int64_t tokens_per_minute = 0;
  int32_t max_sessions = 0;
  int64_t max_session_tokens = 0;  // known tokens of all sessions
  // Of KV in host memory, in whole blocks: a partly filled one counts as a block, and a limit below
  // one block stores nothing. At the limit the tenant's own pages are reused, those that no session
  // wants first; if there are none, its KV is not stored, as if host memory were full.
  int64_t max_host_kv_tokens = 0;

  bool operator==(const TenantLimits&) const = default;
};

inline constexpr double kMinTenantWeight = 0.01;
inline constexpr double kMaxTenantWeight = 100;

// INVALID_ARGUMENT that begins with the name of the field that is out of range.
absl::Status ValidateTenantLimits(const TenantLimits& limits);

// The limits of every tenant at one time.
struct TenantTable {
  static constexpr size_t kMaxTenants = 1024;  // named ones

  TenantLimits defaults;  // of tenants that are not named, the unnamed tenant (0) included
  std::vector<std::pair<TenantId, TenantLimits>> tenants;
};

// INVALID_ARGUMENT: too many tenants, a tenant twice, or limits out of range.
absl::Status ValidateTenantTable(const TenantTable& table);

// The limits that refuse a request; the others let it wait or bound what is kept.
enum class TenantLimit : uint8_t { kQueuedRequests, kQueuedTokens, kTokensPerMinute };
inline constexpr size_t kNumTenantLimits = 3;
const char* Name(TenantLimit limit);  // "max_queued_requests", ...

// Payloads of refusals: the name of the field of TenantLimits; its value, decimal; seconds,
// decimal.
inline constexpr char kLimitName[] = "quire.limit/name";
inline constexpr char kLimitValue[] = "quire.limit/value";
inline constexpr char kLimitRetrySeconds[] = "quire.limit/retry_seconds";
// RESOURCE_EXHAUSTED with these; `state` says in words how the limit is used up. Without a
// retry if `retry_seconds` is negative: it is not known when the limit frees.
absl::Status TenantLimitReached(TenantLimit limit, int64_t value, double retry_seconds,
                                const std::string& state);

// One tenant's figures, as EngineStats has them. Tenants that are not named keep theirs for a while
// after their last request.
struct TenantStats {
  TenantId tenant = 0;
  bool named = false;   // in the TenantTable
  int32_t running = 0;  // sequences with a row, or whose KV comes back from the host
  int32_t queued = 0;   // preempted ones included
  int64_t queued_tokens = 0;
  int64_t prefill_tokens_left = 0;  // of running sequences, as of the last step planned
  uint64_t begun = 0;               // requests that got a row
  uint64_t begun_tokens = 0;        // their prompt tokens
  uint64_t prompt_tokens = 0;       // known tokens computed; once more after a preemption
  uint64_t generated_tokens = 0;
  int64_t host_pages = 0;                            // pages of host memory that hold its KV
  std::array<uint64_t, kNumTenantLimits> refused{};  // by TenantLimit
};

}  // namespace quire
