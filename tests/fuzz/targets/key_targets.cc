// The bodies of the targets; CHECK is the oracle.
#include "tests/fuzz/targets/key_targets.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "kernels/check.h"
#include "nlohmann/json.hpp"
#include "server/identity/key_door.h"

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr char kMethod[] = "/quire.v1.Control/GetServerInfo";

std::string HexOf(const KeyDigest& digest) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

// Whether the list of the file has an object in which the field has that text, of that tenant.
bool Stands(const Json& file, const char* list, const Json& wanted) {
  const Json entries = file.value(list, Json::array());
  return std::ranges::any_of(entries, [&wanted](const Json& entry) {
    return std::ranges::all_of(wanted.items(), [&entry](const auto& item) {
      return entry.contains(item.key()) && entry[item.key()] == item.value();
    });
  });
}

std::string TheKey() {
  return "qk-" + std::string(kKeyIdDigits, 'a') + "-" + std::string(kKeySecretDigits, 'b');
}

}  // namespace

void FuzzKeyTable(std::string_view bytes) {
  const absl::StatusOr<KeyTable> table = ParseKeyTable(bytes, "keys.json");
  if (!table.ok()) {
    CHECK(absl::IsInvalidArgument(table.status()));
    CHECK(std::string(table.status().message()).starts_with("keys.json"));
    return;
  }
  const Json file = Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  CHECK(!file.is_discarded());
  for (const auto& [id, entry] : table->keys) {
    const std::string& tenant = entry.caller->tenant_name;
    CHECK(Stands(file, "keys", {{"id", id}, {"sha256", HexOf(entry.digest)}, {"tenant", tenant}}));
    CHECK(file["tenants"].contains(tenant));
  }
  for (const auto& [name, entry] : table->certificates) {
    const std::string& tenant = entry.caller->tenant_name;
    CHECK(Stands(file, "certificates", {{"name", name}, {"tenant", tenant}}));
    CHECK(file["tenants"].contains(tenant));
  }
}

void FuzzAuthorization(std::string_view bytes) {
  static const KeyDoor& door =
      *new KeyDoor(ParseKeyTable(Json{{"tenants", {{"acme", Json::object()}}},
                                      {"keys",
                                       {{{"id", std::string(kKeyIdDigits, 'a')},
                                         {"sha256", HexOf(DigestOf(TheKey()))},
                                         {"tenant", "acme"},
                                         {"scopes", {"infer"}}}}}}
                                     .dump(),
                                 "keys.json")
                       .value(),
                   {"m"}, [] { return int64_t{0}; });
  const Admission admission = door.Admit({.authorization = {bytes}}, kMethod);
  if (!admission.ok()) return;
  CHECK(admission.caller->tenant_name == "acme");
  CHECK(bytes.ends_with(TheKey()));
  CHECK_EQ(bytes.size(), std::string_view("bearer ").size() + TheKey().size());
}

}  // namespace quire
