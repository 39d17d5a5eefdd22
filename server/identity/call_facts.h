// FactsOf: what a call proves about its caller, from the two places where gRPC shows it.
#pragma once

#include <grpc/grpc_security.h>

#include <span>
#include <string_view>

#include "server/identity/door.h"

namespace grpc {
class ServerContextBase;
}

namespace quire {

// Of a call that the gate has admitted. The views live as long as the call.
CallFacts FactsOf(const grpc::ServerContextBase& call);

// Of a call whose headers have just come. `method` gets its path.
CallFacts FactsOf(const grpc_auth_context* context, std::span<const grpc_metadata> metadata,
                  std::string_view* method);

}  // namespace quire
