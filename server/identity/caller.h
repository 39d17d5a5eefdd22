// Caller: who makes a call, and what he may do. Made by a Door (door.h) for each call; everything
// behind it takes the identity from here: the prefix cache, sessions, Abort, logs and metrics.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/values/request.h"

namespace quire {

enum class Scope : uint8_t {
  kInfer = 1,    // generate, tokenize, end one's own requests
  kSession = 2,  // sessions of one's own tenant
  kAdmin = 4,    // drain, trace, profile, flush; requests of all tenants
  kMetrics = 8,  // load, memory, KV events
};

class Scopes {
 public:
  constexpr Scopes() = default;
  constexpr Scopes(std::initializer_list<Scope> scopes) {
    for (const Scope scope : scopes) bits_ |= static_cast<uint8_t>(scope);
  }
  static constexpr Scopes All() {
    return {Scope::kInfer, Scope::kSession, Scope::kAdmin, Scope::kMetrics};
  }
  void Add(Scope scope) { bits_ |= static_cast<uint8_t>(scope); }
  bool Has(Scope scope) const { return (bits_ & static_cast<uint8_t>(scope)) != 0; }
  bool HasOneOf(Scopes others) const { return (bits_ & others.bits_) != 0; }
  bool empty() const { return bits_ == 0; }

 private:
  uint8_t bits_ = 0;
};

struct Caller {
  TenantId tenant = 0;
  std::string tenant_name;  // of logs and metrics; empty: the server knows no tenants
  std::string key_id;       // not secret; empty: no key
  Scopes scopes;
  std::vector<std::string> models;      // served names that requests may use; empty: all
  int32_t max_priority = kMaxPriority;  // of requests

  bool MayUse(std::string_view model) const {
    return models.empty() || std::find(models.begin(), models.end(), model) != models.end();
  }
};
// Never null where a call was admitted.
using CallerRef = std::shared_ptr<const Caller>;

// The number of a tenant's name, the same in every process: session files carry it. 0 for the empty
// name. Names whose numbers are equal are refused where tenants are defined.
TenantId TenantIdOf(std::string_view name);

}  // namespace quire
