// ModelIdentity: a number that identifies the served model. Equal numbers mean interchangeable KV;
// models with different weights or shapes have different numbers.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/engine_setup.h"

namespace quire {

// Hashes the configuration that the arithmetic depends on, and each stored tensor's name, type,
// shape and a sample of its bytes. Reads a few megabytes of any checkpoint. Errors are those of
// Checkpoint::Open.
absl::StatusOr<uint64_t> ModelIdentity(const EngineSetup& setup);

}  // namespace quire
