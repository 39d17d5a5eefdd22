// Mutated key files: the reader never crashes, and a key that it accepts stands in the file, with
// its digest, its tenant, its scopes and its end. The file is read a second time here, by the JSON
// library alone and without the checks of the reader.
// Covers server/identity/key_table.cc
#include "server/identity/key_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "server/identity/key_door.h"
#include "tests/fuzz/mutator.h"

namespace quire {
namespace {

using Json = nlohmann::json;

std::string KeyOf(char digit) {
  return "qk-" + std::string(kKeyIdDigits, digit) + "-" + std::string(kKeySecretDigits, digit);
}

std::string HexOf(const KeyDigest& digest) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

Json Entry(char digit, const char* tenant, const std::vector<std::string>& scopes) {
  return {{"id", std::string(kKeyIdDigits, digit)},
          {"sha256", HexOf(DigestOf(KeyOf(digit)))},
          {"tenant", tenant},
          {"scopes", scopes}};
}

Json KeyFile() {
  Json expires = Entry('b', "beta", {"infer", "session"});
  expires["expires"] = "2027-01-31T12:00:00Z";
  Json limited = Entry('c', "acme", {"metrics", "admin"});
  limited["models"] = {"llama"};
  limited["note"] = "caf\u00e9";
  return {{"tenants",
           {{"acme", {{"weight", 2.5}, {"max_running_requests", 64}}}, {"beta", Json::object()}}},
          {"keys", {Entry('a', "acme", {"infer"}), expires, limited}},
          {"certificates", {{{"name", "dns:gw"}, {"tenant", "beta"}, {"scopes", {"infer"}}}}}};
}

bool HasText(const Json& entry, const char* field, const std::string& text) {
  return entry.contains(field) && entry[field].is_string() && entry[field] == text;
}

// Whether the scopes of `caller` are those that `entry` lists.
bool SameScopes(const Json& entry, const Caller& caller) {
  Scopes listed;
  for (const Json& scope : entry["scopes"]) {
    if (scope == "infer") listed.Add(Scope::kInfer);
    if (scope == "session") listed.Add(Scope::kSession);
    if (scope == "admin") listed.Add(Scope::kAdmin);
    if (scope == "metrics") listed.Add(Scope::kMetrics);
  }
  for (const Scope scope : {Scope::kInfer, Scope::kSession, Scope::kAdmin, Scope::kMetrics}) {
    if (listed.Has(scope) != caller.scopes.Has(scope)) return false;
  }
  return true;
}

// Whether `entry` of the file gives what `accepted` gives.
bool Grants(const Json& entry, const KeyTable::Entry& accepted) {
  const Caller& caller = *accepted.caller;
  return HasText(entry, "tenant", caller.tenant_name) && SameScopes(entry, caller) &&
         entry.value("models", std::vector<std::string>()) == caller.models &&
         entry.contains("expires") == (accepted.expires != KeyTable::kNever);
}

// Every entry of `table` stands in `file`, and every tenant is defined there.
void ExpectFromFile(const KeyTable& table, const Json& file, const std::string& text) {
  const auto granted = [&file](const char* list, const KeyTable::Entry& accepted,
                               const auto& is_it) {
    const Json entries = file.value(list, Json::array());
    return std::any_of(entries.begin(), entries.end(),
                       [&](const Json& entry) { return is_it(entry) && Grants(entry, accepted); });
  };
  for (const auto& [id, accepted] : table.keys) {
    EXPECT_TRUE(granted("keys", accepted,
                        [&](const Json& entry) {
                          return HasText(entry, "id", id) &&
                                 HasText(entry, "sha256", HexOf(accepted.digest));
                        }))
        << id << " in\n"
        << text;
    EXPECT_TRUE(file["tenants"].contains(accepted.caller->tenant_name)) << text;
  }
  for (const auto& [name, accepted] : table.certificates) {
    EXPECT_TRUE(granted("certificates", accepted,
                        [&](const Json& entry) { return HasText(entry, "name", name); }))
        << name << " in\n"
        << text;
  }
}

// A key opens the door only if its digest stands in the file. Gives the number of keys that do.
int ExpectDoorOpensFor(const KeyTable& table, const Json& file, const std::string& text) {
  const KeyDoor door(table, {"llama", "m"}, [] { return int64_t{0}; });
  int opened = 0;
  for (const char digit : {'a', 'b', 'c', 'd', '0'}) {
    const std::string header = "Bearer " + KeyOf(digit);
    const Admission admission =
        door.Admit({.authorization = {header}}, "/quire.v1.Control/GetServerInfo");
    if (!admission.ok()) continue;
    ++opened;
    const Json keys = file.value("keys", Json::array());
    EXPECT_TRUE(std::any_of(keys.begin(), keys.end(),
                            [digit](const Json& entry) {
                              return HasText(entry, "sha256", HexOf(DigestOf(KeyOf(digit))));
                            }))
        << header << " in\n"
        << text;
  }
  return opened;
}

struct Outcome {
  int accepted = 0, opened = 0;
};

void Read(const std::string& text, Outcome* outcome) {
  const absl::StatusOr<KeyTable> table = ParseKeyTable(text, "keys.json");
  if (!table.ok()) {
    EXPECT_EQ(table.status().message().find("keys.json"), 0u) << table.status();
    return;
  }
  const Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  ASSERT_FALSE(file.is_discarded()) << text;
  ExpectFromFile(*table, file, text);
  ++outcome->accepted;
  outcome->opened += ExpectDoorOpensFor(*table, file, text);
}

TEST(KeyTableFuzzTest, TheFileAsItIsOpensForItsKeys) {
  Outcome outcome;
  Read(KeyFile().dump(), &outcome);
  EXPECT_EQ(outcome.accepted, 1);
  EXPECT_EQ(outcome.opened, 3);
}

TEST(KeyTableFuzzTest, MutatedText) {
  Mutator mutator({KeyFile().dump(), KeyFile().dump(1)},
                  {"{",
                   "}",
                   "[",
                   "]",
                   ",",
                   ":",
                   "\"",
                   "null",
                   "\\u0061",
                   "\"admin\"",
                   "\"acme\"",
                   "\"id\":",
                   "\"sha256\":",
                   "\"scopes\":",
                   "\"keys\":",
                   "\"tenants\":",
                   "1e999",
                   "-1",
                   "\xC3",
                   std::string("\0", 1),
                   std::string(kKeyIdDigits, 'd'),
                   HexOf(DigestOf(KeyOf('d')))},
                  21);
  Outcome outcome;
  for (int i = 0; i < 20000; ++i) Read(mutator.Next(), &outcome);
  EXPECT_GT(outcome.accepted, 10) << "some edits are harmless, such as those of spaces";
  EXPECT_GT(outcome.opened, 0);
}

// Valid JSON with some values exchanged or gone: passes the JSON reader and reaches the checks
// behind it.
TEST(KeyTableFuzzTest, MutatedValues) {
  const Json original = KeyFile();
  std::vector<std::string> paths;
  const Json leaves = original.flatten();
  for (const auto& [path, value] : leaves.items()) paths.push_back(path);
  const std::vector<Json> values = {nullptr,
                                    true,
                                    0,
                                    -1,
                                    64,
                                    9223372036854775807,
                                    18446744073709551615u,
                                    1e300,
                                    0.5,
                                    "",
                                    "admin",
                                    "beta",
                                    "nobody",
                                    "2026-02-30",
                                    "9999-12-31",
                                    "dns:gw",
                                    std::string(kKeyIdDigits, 'a'),
                                    std::string(kKeyIdDigits, 'd'),
                                    HexOf(DigestOf(KeyOf('d'))),
                                    HexOf({}),
                                    Json::array(),
                                    Json::object(),
                                    {"infer", "infer"},
                                    {{"weight", 1}}};
  std::mt19937 random(22);
  Outcome outcome;
  for (int i = 0; i < 20000; ++i) {
    Json file = original;
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
      Json::json_pointer at(paths[random() % paths.size()]);
      for (unsigned up = random() % 3; up > 0 && !at.empty(); --up) at = at.parent_pointer();
      if (!file.contains(at)) continue;
      if (random() % 5 == 0 && !at.empty() && file[at.parent_pointer()].is_object()) {
        file[at.parent_pointer()].erase(at.back());
      } else {
        file[at] = values[random() % values.size()];
      }
    }
    Read(file.dump(), &outcome);
  }
  EXPECT_GT(outcome.accepted, 100);
  EXPECT_GT(outcome.opened, 0);
}

}  // namespace
}  // namespace quire
