// ReadTrace: recorded requests to send again: their times, their lengths, and which prompts share
// a beginning.
//
// Two formats, distinguished by the first line. JSON lines: `timestamp` (milliseconds, as in
// Mooncake's traces) or `arrival_s` (seconds), `input_length`, `output_length`, and optionally
// `hash_ids`, one id for each block of the prompt: blocks with the same id hold the same tokens.
// CSV with the header TIMESTAMP,ContextTokens,GeneratedTokens, as in Azure's traces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quire::load {

struct TraceRow {
  double arrival_seconds = 0;  // after the first row
  int32_t input_length = 0;
  int32_t output_length = 0;
  std::vector<int64_t> hash_ids;
};

// In order of arrival, at least one row. INVALID_ARGUMENT names file and line of the first fault: a
// line that is empty or no row, a missing field, a length below 1, a time before that of the row
// above, or a number of hash ids other than the prompt's number of blocks. `block` is the number of
// tokens of a hash id.
absl::StatusOr<std::vector<TraceRow>> ReadTrace(const std::string& path, int32_t block);

}  // namespace quire::load
