// Identity: the tenant of a call. The one place that decides it, for all state that is kept between
// calls: sessions belong to a tenant, and nothing cached is shared between tenants.
#pragma once

#include <functional>

#include "engine/values/request.h"

namespace grpc {
class ServerContextBase;
}

namespace quire {

// Decides by the connection's proof of the caller's identity, never by the request. Quick; any
// thread.
using Identity = std::function<TenantId(const grpc::ServerContextBase& call)>;

// There are no credentials yet: all callers are one tenant.
TenantId OneTenant(const grpc::ServerContextBase& call);

}  // namespace quire
