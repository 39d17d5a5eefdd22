// Key files that are read, and others that are refused by name.
// Covers engine/values/tenant_limits.cc
#include "server/identity/key_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// sha256sum of "qk-0123456789abcdef-" and 64 times "0", by coreutils.
constexpr char kDigest[] = "8b107be308276305749c72167b34943389af9d03528c3775ed6eb2251599bb47";

std::string File(const std::string& keys, const std::string& tenants = R"("acme": {})") {
  return "{\"tenants\": {" + tenants + "}, \"keys\": [" + keys + "]}";
}

std::string Key(const std::string& more = "", const std::string& id = "0123456789abcdef") {
  return R"({"id": ")" + id + R"(", "sha256": ")" + kDigest +
         R"(", "tenant": "acme", "scopes": ["infer"])" + more + "}";
}

std::string FaultOf(const std::string& text) {
  const absl::StatusOr<KeyTable> table = ParseKeyTable(text, "keys.json");
  EXPECT_FALSE(table.ok()) << text;
  EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(table.status().message());
}

TEST(KeyTableTest, ReadsKeysTenantsAndCertificates) {
  const std::string text = R"({
    "tenants": {"acme": {"weight": 2.5, "max_running_requests": 8, "tokens_per_minute": 60000,
                         "max_host_kv_tokens": 9000000000, "max_priority": 5},
                "zeta": {}},
    "keys": [{"id": "0123456789abcdef", "sha256": ")" +
                           std::string(kDigest) + R"(", "tenant": "acme",
              "scopes": ["infer", "session"], "models": ["m"], "expires": "2027-01-31",
              "note": "of the build machine"}],
    "certificates": [{"name": "spiffe://cluster/gateway", "tenant": "zeta", "scopes": ["admin"]}]
  })";
  const absl::StatusOr<KeyTable> table = ParseKeyTable(text, "keys.json");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->tenants, ElementsAre("acme", "zeta"));
  const KeyTable::Entry& key = table->keys.at("0123456789abcdef");
  EXPECT_EQ(key.caller->tenant_name, "acme");
  EXPECT_EQ(key.caller->tenant, TenantIdOf("acme"));
  EXPECT_TRUE(key.caller->scopes.Has(Scope::kInfer));
  EXPECT_TRUE(key.caller->scopes.Has(Scope::kSession));
  EXPECT_FALSE(key.caller->scopes.Has(Scope::kAdmin));
  EXPECT_FALSE(key.caller->MayUse("other"));
  EXPECT_EQ(key.expires, 1801353600);  // date -u -d 2027-01-31 +%s
  EXPECT_EQ(key.digest[0], 0x8b);
  EXPECT_EQ(key.digest[31], 0x47);
  const auto& limits = table->limits.tenants;
  ASSERT_EQ(limits.size(), 2u);
  EXPECT_EQ(limits[0].second.weight, 2.5);
  EXPECT_EQ(limits[0].second.max_running_requests, 8);
  EXPECT_EQ(limits[0].second.tokens_per_minute, 60000);
  EXPECT_EQ(limits[0].second.max_host_kv_tokens, 9'000'000'000);
  EXPECT_EQ(limits[1].second.max_host_kv_tokens, 0);
  EXPECT_EQ(table->keys.at("0123456789abcdef").caller->max_priority, 5);
  EXPECT_EQ(table->certificates.at("spiffe://cluster/gateway").caller->tenant_name, "zeta");
  EXPECT_EQ(table->certificates.at("spiffe://cluster/gateway").caller->max_priority, 0);
}

// Another process with another build must give the same numbers: session files carry them.
TEST(KeyTableTest, TenantsHaveTheSameNumberEverywhere) {
  EXPECT_EQ(TenantIdOf(""), 0u);
  // printf acme | sha256sum: the first eight bytes, little-endian.
  EXPECT_EQ(TenantIdOf("acme"), 11549694032862194562u);
}

TEST(KeyTableTest, NamesEachFault) {
  EXPECT_THAT(FaultOf(""), HasSubstr("keys.json"));
  EXPECT_THAT(FaultOf(File(Key()).substr(0, 100)), HasSubstr("keys.json"));
  EXPECT_THAT(FaultOf("{}"), HasSubstr("keys.json: has no 'tenants'"));
  EXPECT_THAT(FaultOf(R"({"tenants": {}, "key": []})"),
              HasSubstr("unknown field 'key'; it has: tenants, keys, certificates"));
  EXPECT_THAT(FaultOf(R"({"tenants": {}, "tenants": {}})"), HasSubstr("duplicate key"));
  EXPECT_THAT(FaultOf(File(Key(R"(, "scope": ["admin"])"))),
              HasSubstr("keys.json.keys[0]: unknown field 'scope'"));
  EXPECT_THAT(FaultOf(File(Key(R"(, "expires": "2027-02-30")"))),
              HasSubstr("keys[0].expires: '2027-02-30' is no time"));
  EXPECT_THAT(FaultOf(File(Key(R"(, "models": [])"))), HasSubstr("keys[0].models is empty"));
  EXPECT_THAT(FaultOf(File(Key("", "0123"))), HasSubstr("keys[0].id must be the 16"));
  EXPECT_THAT(FaultOf(File(Key("", "0123456789ABCDEF"))), HasSubstr("keys[0].id must be the 16"));
  EXPECT_THAT(FaultOf(File(Key() + "," + Key())), HasSubstr("keys[1].id: another key has this id"));
  EXPECT_THAT(FaultOf(File(Key(), R"("another": {})")),
              HasSubstr("keys[0].tenant: no tenant 'acme'"));
  EXPECT_THAT(FaultOf(File("", R"("a b": {})")), HasSubstr("a tenant's name has 1 to 64"));
  EXPECT_THAT(FaultOf(File("", R"("acme": {"weigth": 2})")),
              HasSubstr("tenants.acme: unknown field 'weigth'"));
  EXPECT_THAT(FaultOf(File("", R"("acme": {"max_sessions": -1})")),
              HasSubstr("max_sessions is out of range"));
  EXPECT_THAT(FaultOf(File("", R"("acme": {"max_sessions": 1.5})")),
              HasSubstr("max_sessions must be a whole number"));
  EXPECT_THAT(FaultOf(File("", R"("acme": {"max_host_kv_tokens": -1})")),
              HasSubstr("tenants.acme.max_host_kv_tokens is out of range"));
  EXPECT_THAT(FaultOf(File("", R"("acme": {"max_host_kv_tokens": 1e30})")),
              HasSubstr("tenants.acme.max_host_kv_tokens must be a whole number"));
  EXPECT_THAT(FaultOf(File("", R"("acme": {"max_host_kv_tokens": 9223372036854775808})")),
              HasSubstr("tenants.acme.max_host_kv_tokens is out of range"));
  EXPECT_THAT(FaultOf(File("", R"("acme": {"max_host_kv_tokens": "2g"})")),
              HasSubstr("tenants.acme.max_host_kv_tokens must be a whole number"));
  EXPECT_THAT(FaultOf(File("", R"("acme": {"max_priority": 101})")),
              HasSubstr("tenants.acme.max_priority must be at most 100"));
  EXPECT_THAT(FaultOf(File("", R"("other": {})")), HasSubstr("tenants.other: metrics show"));
  EXPECT_THAT(FaultOf(File("", R"("acme": {"weight": 0})")), HasSubstr("tenants.acme.weight"));
  EXPECT_THAT(FaultOf(R"({"tenants": {"a": {}}, "certificates": [
                {"name": "gateway", "tenant": "a", "scopes": ["infer"]}]})"),
              HasSubstr("certificates[0].name must begin with spiffe://"));
}

TEST(KeyTableTest, KnowsTheFormOfAKey) {
  const std::string good = "qk-0123456789abcdef-" + std::string(64, '0');
  EXPECT_EQ(KeyIdOf(good), "0123456789abcdef");
  EXPECT_EQ(KeyIdOf(good + "0"), "");
  EXPECT_EQ(KeyIdOf(good.substr(0, good.size() - 1)), "");
  EXPECT_EQ(KeyIdOf("sk" + good.substr(2)), "");
  EXPECT_EQ(KeyIdOf(good.substr(0, good.size() - 1) + "G"), "");
  EXPECT_EQ(KeyIdOf(""), "");
}

TEST(KeyTableTest, RefusesAFileThatEverybodyMayWrite) {
  const auto path =
      std::filesystem::temp_directory_path() / ("quire_keys_" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << File(Key());
  EXPECT_TRUE(ReadKeyTable(path).ok());
  chmod(path.c_str(), 0666);
  EXPECT_THAT(std::string(ReadKeyTable(path).status().message()), HasSubstr("chmod o-w"));
  std::filesystem::remove(path);
  EXPECT_EQ(ReadKeyTable(path).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace quire
