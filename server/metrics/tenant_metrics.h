// TenantMetrics: the figures of each tenant of the key file. Part of ServerMetrics; uses its
// registry. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/values/tenant_limits.h"

namespace quire {

struct MetricRegistry;

class TenantMetrics {
 public:
  // Tenants with series of their own; all others together are the tenant "other".
  static constexpr size_t kMaxTenants = 200;

  // `registry` outlives this.
  explicit TenantMetrics(MetricRegistry& registry);
  ~TenantMetrics();

  // `names[i]` is the name of `tenants[i]`; empty: of no tenant that the key file has.
  void Set(const std::vector<TenantStats>& tenants, const std::vector<std::string>& names);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
