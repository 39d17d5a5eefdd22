// vllm.grpc.engine.VllmEngine: the protocol of the gateway smg and of llm-d, over the same streams
// as quire.v1. docs/gateways.md has what it refuses.
#pragma once

#include <memory>

#include "server/call/raw_service.h"
#include "server/wire/wire_resources.h"

namespace quire {

// What `resources` refers to outlives the service.
std::unique_ptr<RawService> MakeVllmEngine(const WireResources& resources);

}  // namespace quire
