// The service of KServe v2 with Triton's extensions: inference.GRPCInferenceService
// (proto/field/kserve.proto).
#pragma once

#include <memory>

#include "server/call/raw_service.h"
#include "server/wire/wire_resources.h"

namespace quire {

// The objects in `resources` outlive the service.
std::unique_ptr<RawService> MakeKserve(const WireResources& resources);

}  // namespace quire
