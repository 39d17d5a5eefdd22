// What --dry-run prints.
#pragma once

#include <string>

#include "engine/engine_setup.h"
#include "server/config/config_flags.h"

namespace quire {

// JSON of every setting as it would be used (each "auto" and 0 resolved), where those that were
// given came from, the device and why --device auto took it, the model, and the memory plan.
std::string DryRunJson(const ParsedSettings& parsed, const EngineSetup& setup);

}  // namespace quire
