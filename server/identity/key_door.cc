// From a header and a certificate to a caller. The id of a key is no secret and is looked up; the
// secret is compared by its digest, in a time that does not depend on it, and a key that does not
// exist takes the same way.
#include "server/identity/key_door.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "server/identity/method_scopes.h"

namespace quire {
namespace {

// The scheme's name has no case (RFC 9110). Empty: not this scheme.
std::string_view BearerToken(std::string_view header) {
  static constexpr std::string_view kScheme = "bearer ";
  if (header.size() <= kScheme.size()) return {};
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = header[i];
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (lower != kScheme[i]) return {};
  }
  return header.substr(kScheme.size());
}

Admission ByKey(const KeyTable& table, std::string_view header, int64_t now) {
  const std::string_view key = BearerToken(header);
  const std::string_view id = KeyIdOf(key);
  if (id.empty()) return {nullptr, Refused::kMalformed};
  static const KeyTable::Entry nothing;
  const auto found = table.keys.find(std::string(id));
  const KeyTable::Entry& entry = found == table.keys.end() ? nothing : found->second;
  const KeyDigest digest = DigestOf(key);
  const bool same = CRYPTO_memcmp(digest.data(), entry.digest.data(), digest.size()) == 0;
  if (!same || entry.caller == nullptr) return {nullptr, Refused::kUnknown};
  return {entry.caller, entry.expires <= now ? Refused::kExpired : Refused::kNo};
}

Admission ByCertificate(const KeyTable& table, const CallFacts& facts, int64_t now) {
  Admission admission{nullptr, Refused::kMissing};
  for (const std::string& name : facts.certificate_names) {
    const auto found = table.certificates.find(name);
    if (found == table.certificates.end()) continue;
    const KeyTable::Entry& entry = found->second;
    // Two names of one certificate must not open two tenants.
    if (admission.caller != nullptr && admission.caller->tenant != entry.caller->tenant) {
      return {nullptr, Refused::kConflict};
    }
    if (admission.caller != nullptr) continue;
    admission = {entry.caller, entry.expires <= now ? Refused::kExpired : Refused::kNo};
  }
  return admission;
}

}  // namespace

KeyDoor::KeyDoor(KeyTable table, std::vector<std::string> served, Clock clock)
    : served_(std::move(served)),
      clock_(clock ? std::move(clock) : [] { return static_cast<int64_t>(std::time(nullptr)); }),
      table_(std::make_shared<const KeyTable>(std::move(table))) {}

void KeyDoor::Replace(KeyTable table) {
  auto replaced = std::make_shared<const KeyTable>(std::move(table));
  const std::lock_guard lock(mutex_);
  table_.swap(replaced);
}

std::shared_ptr<const KeyTable> KeyDoor::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

bool KeyDoor::HasModelFor(const Caller& caller) const {
  return std::any_of(served_.begin(), served_.end(),
                     [&caller](const std::string& name) { return caller.MayUse(name); });
}

Admission KeyDoor::Admit(const CallFacts& facts, std::string_view method) const {
  const MethodRule rule = RuleOf(method);
  static const CallerRef nobody = std::make_shared<const Caller>();
  if (rule.open) return {nobody, Refused::kNo};
  if (facts.authorization.size() > 1) return {nullptr, Refused::kRepeated};
  const std::shared_ptr<const KeyTable> table = this->table();
  const int64_t now = clock_();
  Admission admission = ByCertificate(*table, facts, now);
  if (admission.refused == Refused::kConflict) return admission;
  if (!facts.authorization.empty()) {
    const CallerRef certified = admission.caller;
    admission = ByKey(*table, facts.authorization[0], now);
    if (!admission.ok()) return admission;
    if (certified != nullptr && certified->tenant != admission.caller->tenant) {
      return {nullptr, Refused::kConflict};
    }
  }
  if (!admission.ok()) return admission;
  if (!rule.known) return admission;  // no service has it: UNIMPLEMENTED follows
  if (!admission.caller->scopes.HasOneOf(rule.scopes)) {
    admission.refused = Refused::kScope;
  } else if (!HasModelFor(*admission.caller)) {
    admission.refused = Refused::kModel;
  }
  return admission;
}

}  // namespace quire
