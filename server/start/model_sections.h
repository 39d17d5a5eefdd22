// The sections of --check that follow from config.json and generation_config.json alone.
#pragma once

#include "server/start/check_report.h"
#include "server/start/checked_model.h"

namespace quire {

// Directory, names, sizes, equation, positions.
CheckSection DescribeModel(const CheckedModel& model);
// The defaults of requests, and the keys that are not read.
CheckSection DescribeGeneration(const CheckedModel& model);

}  // namespace quire
