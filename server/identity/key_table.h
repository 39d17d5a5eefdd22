// KeyTable: the keys, client certificates and tenants that a key file names. The file has digests
// of keys, never a key. docs/keys.md describes its format.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/values/tenant_limits.h"
#include "server/identity/caller.h"

namespace quire {

// A key is "qk-" + 16 hexadecimal digits, its id, + "-" + 64, its secret.
inline constexpr size_t kKeyIdDigits = 16;
inline constexpr size_t kKeySecretDigits = 64;
// The id of a well-formed key; empty if it is not.
std::string_view KeyIdOf(std::string_view key);

using KeyDigest = std::array<uint8_t, 32>;
// SHA-256 of the whole key.
KeyDigest DigestOf(std::string_view key);

struct KeyTable {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  static constexpr size_t kMaxKeys = 100'000;

  struct Entry {
    CallerRef caller;
    KeyDigest digest{};        // of a key; unused for a certificate
    int64_t expires = kNever;  // seconds of the Unix clock
  };
  std::unordered_map<std::string, Entry> keys;          // by id
  std::unordered_map<std::string, Entry> certificates;  // by a name of CallFacts
  TenantTable limits;
  std::vector<std::string> tenants;  // all names, sorted
  KeyDigest digest{};                // of the file
};

// INVALID_ARGUMENT names `path`, the entry and the field: not JSON, an unknown field, a field
// twice, an id or a digest twice, a scope that does not exist, a tenant that is not defined, a date
// that is none.
absl::StatusOr<KeyTable> ParseKeyTable(std::string_view json, const std::string& path);

// Also refuses a file that other users of this machine may write.
absl::StatusOr<KeyTable> ReadKeyTable(const std::string& path);

// Seconds of the Unix clock for "2027-01-31" (its beginning) or "2027-01-31T12:00:00Z".
absl::StatusOr<int64_t> ParseTime(const std::string& text);

}  // namespace quire
