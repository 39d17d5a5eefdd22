// Tenants with names have series of their own; the rest is one more, and no label is unbounded.
#include "server/metrics/tenant_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/metrics/metrics.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(TenantMetricsTest, ShowsNamedTenantsAndSumsTheOthers) {
  ServerMetrics metrics("m");
  const std::vector<TenantStats> tenants = {{.tenant = 1,
                                             .running = 3,
                                             .queued = 2,
                                             .prompt_tokens = 100,
                                             .host_pages = 7,
                                             .refused = {0, 0, 5}},
                                            {.tenant = 2, .running = 4, .host_pages = 6},
                                            {.tenant = 3, .running = 5, .host_pages = 8}};
  metrics.tenants().Set(tenants, {"acme", "", ""});
  const std::string page = metrics.Serialize({});
  EXPECT_THAT(page, HasSubstr("quire_tenant_requests_running{model_name=\"m\",tenant=\"acme\"} 3"));
  EXPECT_THAT(page,
              HasSubstr("quire_tenant_requests_running{model_name=\"m\",tenant=\"other\"} 9"));
  EXPECT_THAT(page, HasSubstr("quire_tenant_host_pages{model_name=\"m\",tenant=\"acme\"} 7"));
  EXPECT_THAT(page, HasSubstr("quire_tenant_host_pages{model_name=\"m\",tenant=\"other\"} 14"));
  EXPECT_THAT(page,
              HasSubstr("quire_tenant_prompt_tokens_total{model_name=\"m\",tenant=\"acme\"} 100"));
  EXPECT_THAT(page, ::testing::ContainsRegex("quire_tenant_refused_total.*tokens_per_minute.*} 5"));
}

TEST(TenantMetricsTest, BoundsTheNumberOfSeries) {
  ServerMetrics metrics("m");
  std::vector<TenantStats> tenants;
  std::vector<std::string> names;
  for (size_t i = 0; i < TenantMetrics::kMaxTenants + 50; ++i) {
    tenants.push_back({.tenant = i + 1, .running = 1});
    names.push_back("t" + std::to_string(i));
  }
  metrics.tenants().Set(tenants, names);
  const std::string page = metrics.Serialize({});
  EXPECT_THAT(page, HasSubstr("tenant=\"t199\""));
  EXPECT_THAT(page, Not(HasSubstr("tenant=\"t200\"")));
  EXPECT_THAT(page,
              HasSubstr("quire_tenant_requests_running{model_name=\"m\",tenant=\"other\"} 50"));
}

}  // namespace
}  // namespace quire
