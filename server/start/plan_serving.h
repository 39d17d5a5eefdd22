// PlanServing: the plan of a start, as --dry-run and --check print it, and the exit codes of a plan
// or a load that fails.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "engine/engine_setup.h"
#include "server/start/start_error.h"

namespace quire {

// Reads the model's configuration and plans the memory without allocating any. Starts worker
// processes only to describe their device. On failure `error` holds the reason.
std::optional<EngineSetup> PlanServing(const EngineConfig& config, StartError* error);

// The error of a plan of `config` that failed with `status`: kModel if the directory alone is
// enough to refuse it, else kDevice or kBadConfig.
StartError PlanError(const EngineConfig& config, const absl::Status& status);

// kDevice if the device failed during start-up, else `otherwise`.
ExitCode DeviceOr(ExitCode otherwise, const absl::Status& status);

}  // namespace quire
