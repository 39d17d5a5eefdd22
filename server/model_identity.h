// ModelIdentity: one number for which model is served: equal where KV of the one is KV of the
// other, different wherever weights or shape differ.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/engine_setup.h"

namespace quire {

// A hash of the configuration that the arithmetic depends on, and of every stored tensor's name,
// type, shape and a sample of its bytes: reads a few megabytes of any checkpoint. Errors as
// Checkpoint::Open's.
absl::StatusOr<uint64_t> ModelIdentity(const EngineSetup& setup);

}  // namespace quire
