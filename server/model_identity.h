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

// A number for the files of `setup` that a worker loads, of which ModelIdentity is `identity`: of
// that and of the content of config.json and hf_quant_config.json.
absl::StatusOr<uint64_t> LoadedIdentity(const EngineSetup& setup, uint64_t identity);
// OK if the files still are those of which LoadedIdentity was `loaded`; else FAILED_PRECONDITION
// that says what to do. Any thread.
absl::Status CheckSameFiles(const EngineSetup& setup, uint64_t loaded);

}  // namespace quire
