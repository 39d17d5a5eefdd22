// The section of --check on the safetensors of a model's directory.
#pragma once

#include "server/start/check_report.h"
#include "server/start/checked_model.h"

namespace quire {

// Files, bytes and types, and all tensors that are missing, misshapen or too many. Reads the
// headers alone. Adds to the report what ends a start.
CheckSection DescribeFiles(const CheckedModel& model, CheckReport& report);

}  // namespace quire
