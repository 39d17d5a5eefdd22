// The services of OpenEngine: openengine.v1.Inference and openengine.v1.Control
// (proto/field/openengine.proto).
#pragma once

#include <memory>

#include "server/call/raw_service.h"
#include "server/wire/wire_resources.h"

namespace quire {

// The objects in `resources` outlive the services.
std::unique_ptr<RawService> MakeOpenEngineInference(const WireResources& resources);
std::unique_ptr<RawService> MakeOpenEngineControl(const WireResources& resources);

}  // namespace quire
