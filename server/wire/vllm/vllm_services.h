// The services of vLLM's own gRPC server: vllm.Inference and vllm.Control
// (proto/field/vllm_inference.proto, vllm_control.proto).
#pragma once

#include <memory>

#include "server/call/raw_service.h"
#include "server/wire/wire_resources.h"

namespace quire {

// The objects in `resources` outlive the services.
std::unique_ptr<RawService> MakeVllmInference(const WireResources& resources);
std::unique_ptr<RawService> MakeVllmControl(const WireResources& resources);

}  // namespace quire
