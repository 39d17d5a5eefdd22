// JobLine: one line of a job's input, read into a request, and its result, written as a line. A
// line is {"custom_id": TEXT, "request": GenerateRequest as proto3 JSON}; docs/jobs.md has both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "quire/v1/inference.pb.h"

namespace quire {

struct JobLine {
  uint32_t number = 0;  // in the input, from 1
  std::string custom_id;
  v1::GenerateRequest request;
};

// Reads a line into `line`, which has its number. INVALID_ARGUMENT names the field; what was read
// before the fault, the custom_id above all, is in `line`.
absl::Status ReadJobLine(std::string_view text, JobLine* line);

// The line of the result, without a line break: {"custom_id", "line", "result"} or
// {"custom_id", "line", "status"}. `result`: the bytes of a GenerateResult.
std::string WriteJobResult(const JobLine& line, const absl::StatusOr<std::string>& result);

}  // namespace quire
