// TenantLimits: ranges, each refused by its name.
#include "engine/values/tenant_limits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace quire {
namespace {

std::string Fault(const TenantLimits& limits) {
  const absl::Status status = ValidateTenantLimits(limits);
  const std::string text(status.message().data(), status.message().size());
  return text.substr(0, text.find(' '));
}

TEST(TenantLimitsTest, NamesTheFieldThatIsOutOfRange) {
  EXPECT_TRUE(ValidateTenantLimits({}).ok());
  EXPECT_EQ(Fault({.weight = 0}), "weight");
  EXPECT_EQ(Fault({.weight = 101}), "weight");
  EXPECT_EQ(Fault({.weight = std::nan("")}), "weight");
  EXPECT_EQ(Fault({.max_running_requests = -1}), "max_running_requests");
  EXPECT_EQ(Fault({.max_queued_requests = -1}), "max_queued_requests");
  EXPECT_EQ(Fault({.max_queued_tokens = -1}), "max_queued_tokens");
  EXPECT_EQ(Fault({.tokens_per_minute = -1}), "tokens_per_minute");
  EXPECT_EQ(Fault({.tokens_per_minute = int64_t{1} << 41}), "tokens_per_minute");
  EXPECT_EQ(Fault({.max_sessions = -1}), "max_sessions");
  EXPECT_EQ(Fault({.max_session_tokens = -1}), "max_session_tokens");
  EXPECT_EQ(Fault({.max_host_kv_tokens = -1}), "max_host_kv_tokens");
  EXPECT_TRUE(ValidateTenantLimits({.max_host_kv_tokens = int64_t{1} << 62}).ok());
}

TEST(TenantLimitsTest, TableIsBoundedAndWithoutRepetitions) {
  TenantTable table;
  for (TenantId tenant = 0; tenant < TenantTable::kMaxTenants; ++tenant) {
    table.tenants.emplace_back(tenant, TenantLimits());
  }
  EXPECT_TRUE(ValidateTenantTable(table).ok());
  table.tenants.back().first = 0;
  EXPECT_FALSE(ValidateTenantTable(table).ok());
  table.tenants.back().first = 5000;
  table.tenants.emplace_back(5001, TenantLimits());
  EXPECT_FALSE(ValidateTenantTable(table).ok());
  EXPECT_FALSE(ValidateTenantTable({.defaults = {.weight = -1}}).ok());
}

}  // namespace
}  // namespace quire
