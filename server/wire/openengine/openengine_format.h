// The format of openengine.v1.Inference/Generate (proto/field/openengine.proto).
// docs/protocols.md says what each field becomes.
#pragma once

#include <memory>

#include "server/generate/wire_format.h"

namespace quire {

// `model` outlives the calls.
std::unique_ptr<WireFormat> OpenEngineFormat(const ServingModel& model);

}  // namespace quire
