// MethodScopes: which scopes open which method. The one table of it: no service can have a method
// that is not in it (RawService::Add).
#pragma once

#include <string_view>

#include "server/identity/caller.h"

namespace quire {

struct MethodRule {
  bool known = false;
  bool open = false;  // without a key too: probes cannot send one
  Scopes scopes;      // one of them is enough

  // No other scope opens it: each call is logged with its caller (server/call/raw_service.cc).
  bool administers() const {
    return scopes.Has(Scope::kAdmin) &&
           !scopes.HasOneOf({Scope::kInfer, Scope::kSession, Scope::kMetrics});
  }
};

// `method` is "/package.Service/Method". Any thread.
MethodRule RuleOf(std::string_view method);

}  // namespace quire
