// One caller for all calls.
#include "server/identity/open_door.h"

#include <memory>
#include <utility>

#include "server/identity/method_scopes.h"

namespace quire {
namespace {

CallerRef Anyone(bool admin) {
  Caller caller{.scopes = Scopes{Scope::kInfer, Scope::kSession, Scope::kMetrics}};
  if (admin) caller.scopes.Add(Scope::kAdmin);
  return std::make_shared<const Caller>(std::move(caller));
}

}  // namespace

OpenDoor::OpenDoor(bool admin) : anyone_(Anyone(admin)) {}

Admission OpenDoor::Admit(const CallFacts&, std::string_view method) const {
  const MethodRule rule = RuleOf(method);
  const bool admin_only = rule.known && !rule.open && !anyone_->scopes.HasOneOf(rule.scopes);
  return {anyone_, admin_only ? Refused::kAdminSocket : Refused::kNo};
}

CallerRef LocalAdmin() {
  static const CallerRef admin =
      std::make_shared<const Caller>(Caller{.key_id = "admin-uds", .scopes = Scopes::All()});
  return admin;
}

}  // namespace quire
