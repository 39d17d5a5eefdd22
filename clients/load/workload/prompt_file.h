// ReadPromptFile: prompts as texts, one a line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quire::load {

// A line is the prompt itself, or a JSON object whose "prompt" is. INVALID_ARGUMENT names file and
// line of one that is empty or has no prompt; a file without lines is an error too.
absl::StatusOr<std::vector<std::string>> ReadPromptFile(const std::string& path);

}  // namespace quire::load
