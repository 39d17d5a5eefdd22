// The formats of quire.v1: Generate and GenerateUnary.
#pragma once

#include <memory>

#include "server/generate/wire_format.h"

namespace quire {

// `model` outlives the calls.
std::unique_ptr<WireFormat> GenerateFormat(const ServingModel& model);
std::unique_ptr<WireFormat> GenerateUnaryFormat(const ServingModel& model);

}  // namespace quire
