// The doors that ask for no key.
#pragma once

#include <string_view>

#include "server/identity/door.h"

namespace quire {

// Of a server that knows no keys: every caller is the unnamed tenant, with all scopes or with all
// but Scope::kAdmin.
class OpenDoor final : public Door {
 public:
  explicit OpenDoor(bool admin);
  Admission Admit(const CallFacts& facts, std::string_view method) const override;

 private:
  const CallerRef anyone_;
};

// The one caller of a socket that only the server's own user can open.
CallerRef LocalAdmin();
class LocalAdminDoor final : public Door {
 public:
  Admission Admit(const CallFacts&, std::string_view) const override { return {LocalAdmin()}; }
};

}  // namespace quire
