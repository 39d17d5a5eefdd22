// The section of --check on the tokenizer.
#pragma once

#include "server/start/check_report.h"
#include "server/start/checked_model.h"

namespace quire {

// Builds the tokenizer and takes a short text there and back. Adds to the report what ends a start,
// and a warning for what makes requests with text fail.
CheckSection DescribeTokenizer(const CheckedModel& model, CheckReport& report);

}  // namespace quire
