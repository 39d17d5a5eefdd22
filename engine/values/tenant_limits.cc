// Ranges of tenants' limits.
#include "engine/values/tenant_limits.h"

#include <set>

#include "absl/strings/cord.h"
#include "engine/base/status_macros.h"

namespace quire {

absl::Status ValidateTenantLimits(const TenantLimits& limits) {
  // Written so that a NaN fails too.
  if (!(limits.weight >= kMinTenantWeight && limits.weight <= kMaxTenantWeight)) {
    return absl::InvalidArgumentError("weight must be within [0.01, 100]");
  }
  const std::pair<const char*, int64_t> fields[] = {
      {"max_running_requests", limits.max_running_requests},
      {"max_queued_requests", limits.max_queued_requests},
      {"max_queued_tokens", limits.max_queued_tokens},
      {"tokens_per_minute", limits.tokens_per_minute},
      {"max_sessions", limits.max_sessions},
      {"max_session_tokens", limits.max_session_tokens},
      {"max_host_kv_tokens", limits.max_host_kv_tokens}};
  for (const auto& [name, value] : fields) {
    if (value >= 0) continue;
    return absl::InvalidArgumentError(std::string(name) +
                                      " must not be negative; 0 means no limit");
  }
  // The bucket counts in floating point; this many tokens it counts exactly.
  if (limits.tokens_per_minute > (int64_t{1} << 40)) {
    return absl::InvalidArgumentError("tokens_per_minute must be at most 2^40");
  }
  return absl::OkStatus();
}

absl::Status ValidateTenantTable(const TenantTable& table) {
  RETURN_IF_ERROR(ValidateTenantLimits(table.defaults));
  if (table.tenants.size() > TenantTable::kMaxTenants) {
    return absl::InvalidArgumentError("tenants must be at most " +
                                      std::to_string(TenantTable::kMaxTenants));
  }
  std::set<TenantId> seen;
  for (const auto& [tenant, limits] : table.tenants) {
    RETURN_IF_ERROR(ValidateTenantLimits(limits));
    if (!seen.insert(tenant).second) {
      return absl::InvalidArgumentError("tenants must be unique; " + std::to_string(tenant) +
                                        " is there twice");
    }
  }
  return absl::OkStatus();
}

const char* Name(TenantLimit limit) {
  switch (limit) {
    case TenantLimit::kQueuedRequests: return "max_queued_requests";
    case TenantLimit::kQueuedTokens: return "max_queued_tokens";
    case TenantLimit::kTokensPerMinute: return "tokens_per_minute";
  }
  return "";
}

absl::Status TenantLimitReached(TenantLimit limit, int64_t value, double retry_seconds,
                                const std::string& state) {
  const std::string name = Name(limit);
  absl::Status status = absl::ResourceExhaustedError(
      "the tenant's limit " + name + " of " + std::to_string(value) + " is reached: " + state);
  status.SetPayload(kLimitName, absl::Cord(name));
  status.SetPayload(kLimitValue, absl::Cord(std::to_string(value)));
  if (retry_seconds >= 0) {
    status.SetPayload(kLimitRetrySeconds, absl::Cord(std::to_string(retry_seconds)));
  }
  return status;
}

}  // namespace quire
