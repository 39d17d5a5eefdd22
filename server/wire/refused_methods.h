// RefusedMethods: methods of a protocol that this server does not have. Each answers UNIMPLEMENTED
// and says what is missing, so that a client can tell it from a misspelt name.
#pragma once

#include <span>

#include "server/call/call_resources.h"
#include "server/call/raw_service.h"

namespace quire {

struct RefusedMethod {
  const char* path;    // "/package.Service/Method"
  const char* reason;  // such as "weights are not replaced while the server runs"
};

// Adds them as unary methods, which also answers streaming calls. `methods` are literals;
// `resources` outlive the service.
void AddRefusedMethods(RawService* service, const CallResources* resources,
                       std::span<const RefusedMethod> methods);

}  // namespace quire
