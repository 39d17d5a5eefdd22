// The formats of vllm.Inference: Generate and GenerateStream of vLLM's own gRPC server
// (proto/field/vllm_inference.proto). docs/protocols.md says what each field becomes.
#pragma once

#include <memory>

#include "server/generate/wire_format.h"

namespace quire {

// `model` outlives the calls.
std::unique_ptr<WireFormat> VllmStreamFormat(const ServingModel& model);
std::unique_ptr<WireFormat> VllmUnaryFormat(const ServingModel& model);

}  // namespace quire
