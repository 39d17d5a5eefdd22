// ReadTrace: requests recorded elsewhere, to be asked again: when, how long, and which prompts
// began alike.
//
// Two forms, told apart by the first line. JSON lines: `timestamp` (milliseconds, as Mooncake's
// traces have it) or `arrival_s` (seconds), `input_length`, `output_length`, and optionally
// `hash_ids`, one id for each block of the prompt: blocks with the same id hold the same tokens.
// CSV with the header TIMESTAMP,ContextTokens,GeneratedTokens, as Azure's traces have it.
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
// line that is empty or no row, a missing field, a length below 1, a time before the row above's.
// `block` is the tokens of a hash id: more ids than the prompt has blocks, or fewer, is a fault
// too.
absl::StatusOr<std::vector<TraceRow>> ReadTrace(const std::string& path, int32_t block);

}  // namespace quire::load
