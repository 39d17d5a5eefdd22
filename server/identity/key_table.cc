// Reads the file strictly: a field that is misspelt must not open a door.
#include "server/identity/key_table.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/file_error.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr char kPrefix[] = "qk-";
constexpr size_t kPrefixBytes = sizeof kPrefix - 1;
constexpr size_t kMaxNameBytes = 64;

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// A value of the file, with its place there for messages.
struct Place {
  const Json& json;
  std::string where;  // "keys.json: keys[3]"

  absl::Status Fault(const std::string& words) const {
    return absl::InvalidArgumentError(where + words);
  }
  Place At(const std::string& field) const { return {json.at(field), where + "." + field}; }
  bool Has(const char* field) const { return json.contains(field); }
};

absl::Status CheckFields(const Place& place, const std::vector<std::string>& known) {
  if (!place.json.is_object()) return place.Fault(" must be an object: {...}");
  for (const auto& [name, value] : place.json.items()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return place.Fault(": unknown field '" + name + "'; it has: " + absl::StrJoin(known, ", "));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextOf(const Place& place) {
  if (!place.json.is_string()) return place.Fault(" must be a text");
  return place.json.get<std::string>();
}

absl::StatusOr<std::string> Required(const Place& place, const char* field) {
  if (!place.Has(field)) return place.Fault(std::string(" has no '") + field + "'");
  return TextOf(place.At(field));
}

absl::StatusOr<std::vector<std::string>> Texts(const Place& place) {
  if (!place.json.is_array()) return place.Fault(" must be a list of texts: [...]");
  std::vector<std::string> texts;
  for (const Json& entry : place.json) {
    if (!entry.is_string()) return place.Fault(" must be a list of texts: [...]");
    texts.push_back(entry.get<std::string>());
  }
  return texts;
}

absl::Status CheckTenantName(const std::string& name, const Place& place) {
  const bool good = !name.empty() && name.size() <= kMaxNameBytes &&
                    name.find_first_not_of(
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789._-") == std::string::npos;
  if (name == "other") {
    return place.Fault(": metrics show tenants beyond the 200th by this name; choose another one");
  }
  if (good) return absl::OkStatus();
  return place.Fault(": a tenant's name has 1 to 64 letters, digits, '.', '_' and '-'");
}

absl::StatusOr<Scopes> ScopesOf(const Place& place) {
  if (!place.Has("scopes")) return place.Fault(" has no 'scopes'");
  ASSIGN_OR_RETURN(const std::vector<std::string> names, Texts(place.At("scopes")));
  Scopes scopes;
  for (const std::string& name : names) {
    if (name == "infer") {
      scopes.Add(Scope::kInfer);
    } else if (name == "session") {
      scopes.Add(Scope::kSession);
    } else if (name == "admin") {
      scopes.Add(Scope::kAdmin);
    } else if (name == "metrics") {
      scopes.Add(Scope::kMetrics);
    } else {
      return place.Fault(".scopes: unknown scope '" + name +
                         "'; there are: infer, session, admin, metrics");
    }
  }
  if (scopes.empty()) return place.Fault(".scopes is empty");
  return scopes;
}

// A number that a tenant may set, by the name of its field.
template <typename Number>
absl::Status TakeNumber(const Place& place, const char* field, Number* out) {
  if (!place.Has(field)) return absl::OkStatus();
  const Place at = place.At(field);
  constexpr bool kWhole = std::is_integral_v<Number>;
  if (kWhole ? !at.json.is_number_integer() : !at.json.is_number()) {
    return at.Fault(kWhole ? " must be a whole number" : " must be a number");
  }
  const double value = at.json.get<double>();
  // Plus 1, because the largest int64_t rounds up to a number that is none.
  if (value < 0 || value >= static_cast<double>(std::numeric_limits<Number>::max()) + 1) {
    return at.Fault(" is out of range");
  }
  *out = at.json.get<Number>();
  return absl::OkStatus();
}

absl::StatusOr<TenantLimits> LimitsOf(const Place& place) {
  RETURN_IF_ERROR(CheckFields(place, {"weight", "max_running_requests", "max_queued_requests",
                                      "max_queued_tokens", "tokens_per_minute", "max_sessions",
                                      "max_session_tokens", "max_host_kv_tokens", "max_priority"}));
  TenantLimits limits;
  RETURN_IF_ERROR(TakeNumber(place, "weight", &limits.weight));
  RETURN_IF_ERROR(TakeNumber(place, "max_running_requests", &limits.max_running_requests));
  RETURN_IF_ERROR(TakeNumber(place, "max_queued_requests", &limits.max_queued_requests));
  RETURN_IF_ERROR(TakeNumber(place, "max_queued_tokens", &limits.max_queued_tokens));
  RETURN_IF_ERROR(TakeNumber(place, "tokens_per_minute", &limits.tokens_per_minute));
  RETURN_IF_ERROR(TakeNumber(place, "max_sessions", &limits.max_sessions));
  RETURN_IF_ERROR(TakeNumber(place, "max_session_tokens", &limits.max_session_tokens));
  RETURN_IF_ERROR(TakeNumber(place, "max_host_kv_tokens", &limits.max_host_kv_tokens));
  const absl::Status valid = ValidateTenantLimits(limits);
  if (!valid.ok()) return place.Fault(absl::StrCat(".", valid.message()));
  return limits;
}

class TableReader {
 public:
  absl::StatusOr<KeyTable> Read(const Place& file) {
    RETURN_IF_ERROR(CheckFields(file, {"tenants", "keys", "certificates"}));
    if (!file.Has("tenants")) return file.Fault(": has no 'tenants'");
    const Place tenants = file.At("tenants");
    if (!tenants.json.is_object()) return tenants.Fault(" must be an object: {\"NAME\": {...}}");
    for (const auto& [name, limits] : tenants.json.items()) {
      RETURN_IF_ERROR(AddTenant(name, {limits, tenants.where + "." + name}));
    }
    RETURN_IF_ERROR(EachOf(file, "keys", [this](const Place& key) { return AddKey(key); }));
    RETURN_IF_ERROR(
        EachOf(file, "certificates", [this](const Place& entry) { return AddCertificate(entry); }));
    const absl::Status valid = ValidateTenantTable(table_.limits);
    if (!valid.ok()) return file.Fault(absl::StrCat(": ", valid.message()));
    return std::move(table_);
  }

 private:
  template <typename Function>
  absl::Status EachOf(const Place& file, const char* field, Function add) {
    if (!file.Has(field)) return absl::OkStatus();
    const Place list = file.At(field);
    if (!list.json.is_array()) return list.Fault(" must be a list: [...]");
    for (size_t i = 0; i < list.json.size(); ++i) {
      RETURN_IF_ERROR(add(Place{list.json[i], absl::StrCat(list.where, "[", i, "]")}));
    }
    return absl::OkStatus();
  }

  absl::Status AddTenant(const std::string& name, const Place& place) {
    RETURN_IF_ERROR(CheckTenantName(name, place));
    ASSIGN_OR_RETURN(const TenantLimits limits, LimitsOf(place));
    int32_t max_priority = 0;  // above others of its own accord: only if the file says so
    RETURN_IF_ERROR(TakeNumber(place, "max_priority", &max_priority));
    if (max_priority > kMaxPriority) {
      return place.Fault(absl::StrCat(".max_priority must be at most ", kMaxPriority));
    }
    const TenantId id = TenantIdOf(name);
    if (!max_priorities_.emplace(id, max_priority).second || id == 0) {
      return place.Fault(": this name has the number of another one; choose another name");
    }
    table_.limits.tenants.emplace_back(id, limits);
    table_.tenants.push_back(name);
    return absl::OkStatus();
  }

  // The fields that keys and certificates share.
  absl::StatusOr<KeyTable::Entry> EntryOf(const Place& place, const std::string& id) {
    Caller caller{.key_id = id};
    ASSIGN_OR_RETURN(caller.tenant_name, Required(place, "tenant"));
    caller.tenant = TenantIdOf(caller.tenant_name);
    const auto max_priority = max_priorities_.find(caller.tenant);
    if (max_priority == max_priorities_.end()) {
      return place.Fault(".tenant: no tenant '" + caller.tenant_name + "' in 'tenants'");
    }
    caller.max_priority = max_priority->second;
    ASSIGN_OR_RETURN(caller.scopes, ScopesOf(place));
    if (place.Has("models")) {
      ASSIGN_OR_RETURN(caller.models, Texts(place.At("models")));
      if (caller.models.empty()) return place.Fault(".models is empty; leave it out for all");
    }
    KeyTable::Entry entry;
    if (place.Has("expires")) {
      ASSIGN_OR_RETURN(const std::string text, TextOf(place.At("expires")));
      const absl::StatusOr<int64_t> expires = ParseTime(text);
      if (!expires.ok()) return place.Fault(absl::StrCat(".expires: ", expires.status().message()));
      entry.expires = *expires;
    }
    entry.caller = std::make_shared<const Caller>(std::move(caller));
    return entry;
  }

  absl::Status AddKey(const Place& place) {
    RETURN_IF_ERROR(
        CheckFields(place, {"id", "sha256", "tenant", "scopes", "models", "expires", "note"}));
    ASSIGN_OR_RETURN(const std::string id, Required(place, "id"));
    if (id.size() != kKeyIdDigits || !IsHex(id)) {
      return place.Fault(".id must be the 16 hexadecimal digits after 'qk-'");
    }
    ASSIGN_OR_RETURN(const std::string digest, Required(place, "sha256"));
    if (digest.size() != 2 * sizeof(KeyDigest) || !IsHex(digest)) {
      return place.Fault(".sha256 must be the 64 hexadecimal digits that sha256sum prints");
    }
    ASSIGN_OR_RETURN(KeyTable::Entry entry, EntryOf(place, id));
    const std::string bytes = absl::HexStringToBytes(digest);
    std::copy_n(bytes.begin(), bytes.size(), entry.digest.begin());
    if (!table_.keys.emplace(id, std::move(entry)).second) {
      return place.Fault(".id: another key has this id");
    }
    if (table_.keys.size() > KeyTable::kMaxKeys) return place.Fault(": more than 100000 keys");
    return absl::OkStatus();
  }

  absl::Status AddCertificate(const Place& place) {
    RETURN_IF_ERROR(CheckFields(place, {"name", "tenant", "scopes", "models", "expires", "note"}));
    ASSIGN_OR_RETURN(const std::string name, Required(place, "name"));
    const bool kind = name.starts_with("spiffe://") || name.starts_with("uri:") ||
                      name.starts_with("dns:") || name.starts_with("cn:");
    if (!kind) {
      return place.Fault(
          ".name must begin with spiffe://, uri:, dns: or cn: (a name in the certificate)");
    }
    ASSIGN_OR_RETURN(KeyTable::Entry entry, EntryOf(place, name));
    if (!table_.certificates.emplace(name, std::move(entry)).second) {
      return place.Fault(".name: another entry has this name");
    }
    return absl::OkStatus();
  }

  KeyTable table_;
  std::map<TenantId, int32_t> max_priorities_;
};

}  // namespace

std::string_view KeyIdOf(std::string_view key) {
  if (key.size() != kPrefixBytes + kKeyIdDigits + 1 + kKeySecretDigits) return {};
  if (!key.starts_with(kPrefix) || key[kPrefixBytes + kKeyIdDigits] != '-') return {};
  const std::string_view id = key.substr(kPrefixBytes, kKeyIdDigits);
  const std::string_view secret = key.substr(kPrefixBytes + kKeyIdDigits + 1);
  return IsHex(id) && IsHex(secret) ? id : std::string_view();
}

KeyDigest DigestOf(std::string_view key) {
  KeyDigest digest;
  SHA256(reinterpret_cast<const uint8_t*>(key.data()), key.size(), digest.data());
  return digest;
}

absl::StatusOr<int64_t> ParseTime(const std::string& text) {
  for (const char* format : {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"}) {
    std::tm time{};
    const char* const end = strptime(text.c_str(), format, &time);
    if (end == nullptr || *end != '\0') continue;
    std::tm normal = time;
    const int64_t seconds = timegm(&normal);
    // timegm turns February 30 into March 2.
    if (normal.tm_mday == time.tm_mday && normal.tm_mon == time.tm_mon) return seconds;
  }
  return absl::InvalidArgumentError("'" + text +
                                    "' is no time; write 2027-01-31 or 2027-01-31T12:00:00Z");
}

absl::StatusOr<KeyTable> ParseKeyTable(std::string_view json, const std::string& path) {
  ASSIGN_OR_RETURN(
      const Json parsed,
      ParseJson(json, path,
                {.max_depth = 8, .max_bytes = size_t{64} << 20, .max_values = size_t{2} << 20}));
  ASSIGN_OR_RETURN(KeyTable table, TableReader().Read({parsed, path}));
  table.digest = DigestOf(json);
  return table;
}

absl::StatusOr<KeyTable> ReadKeyTable(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return FileError(path, errno);
  if ((info.st_mode & S_IWOTH) != 0) {
    return absl::InvalidArgumentError(path +
                                      ": every user of this machine may write it; chmod o-w it");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return FileError(path, errno);
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return FileError(path, errno);
  return ParseKeyTable(text.str(), path);
}

}  // namespace quire
