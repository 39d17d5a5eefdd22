// A line of a job, read. A job refuses more than a call does: its lines may run twice, so they must
// change nothing.
#pragma once

#include "absl/status/status.h"
#include "server/jobs/line_reader.h"
#include "server/lines/request_line.h"

namespace quire {

// As ReadRequestLine, for `line` with the number of `input`.
absl::Status ReadJobLine(const InputLine& input, RequestLine* line);

}  // namespace quire
