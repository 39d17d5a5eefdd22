// EngineTrouble: the health that the server publishes, as the health calls of other protocols tell
// it.
#pragma once

#include <string>

#include "server/wire/wire_resources.h"

namespace quire {

// Why the engine cannot serve, as grpc.health.v1 and /readyz see it; empty: it can. A drain is no
// trouble of the engine. Any thread.
std::string EngineTrouble(const WireResources& resources);

}  // namespace quire
