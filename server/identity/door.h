// Door: the one function that says whose call it is, and whether he may make it. The listener asks
// it when a call's headers have come, before its message is read (call_gate.h), and
// the call itself asks again for the identity.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/identity/caller.h"

namespace quire {

// The proofs of a call about its caller. The views live as long as the call's headers.
struct CallFacts {
  std::vector<std::string_view> authorization;  // all headers of this name
  // Of the client's verified certificate, each with its kind: "spiffe://cluster/x", "uri:...",
  // "dns:...", "cn:...".
  std::vector<std::string> certificate_names;
};

// Why a call is refused; the label of quire_auth_failures_total.
enum class Refused : uint8_t {
  kNo,         // admitted
  kMissing,    // neither a key nor a certificate that names a tenant
  kMalformed,  // the header is no key of ours
  kRepeated,   // more than one authorization header
  kUnknown,    // no such key, or a wrong secret
  kExpired,
  kConflict,     // key and certificate name different tenants
  kScope,        // the method needs another scope
  kModel,        // the key is for other models
  kAdminSocket,  // the method is answered on the admin socket alone
};
inline constexpr int kNumRefused = 10;
const char* Name(Refused refused);  // "missing", ...

struct Admission {
  CallerRef caller;  // null if refused before the caller was known
  Refused refused = Refused::kNo;

  bool ok() const { return refused == Refused::kNo; }
};

class Door {
 public:
  virtual ~Door() = default;
  // The caller of `method` ("/quire.v1.Inference/Generate"). Takes a few microseconds, and does not
  // block; any thread.
  virtual Admission Admit(const CallFacts& facts, std::string_view method) const = 0;
};

// UNAUTHENTICATED or PERMISSION_DENIED. Says no more than the caller knows: a wrong secret looks
// like an unknown key.
absl::Status StatusOf(Refused refused);

}  // namespace quire
