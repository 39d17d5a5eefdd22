// CheckModel: reads all that a start reads but the tensors' data, with the same readers, and
// reports what there is, what would happen and every reason why a start would fail.
#pragma once

#include "server/config/server_config.h"
#include "server/start/check_report.h"

namespace quire {

// `settings` are validated and name a model directory. Binds no address and loads no weights; where
// there is a GPU it starts worker processes to describe it, as --dry-run does. Ports in use, faults
// in the tensors' data and memory that other processes take until the start are not seen.
CheckReport CheckModel(const Settings& settings);

}  // namespace quire
