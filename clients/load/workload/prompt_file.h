// ReadPromptFile: prompts as texts, one per line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quire::load {

// A line is the prompt itself, or a JSON object with the prompt under "prompt". INVALID_ARGUMENT
// names the file and line of an empty line or one without a prompt; a file without lines is an
// error.
absl::StatusOr<std::vector<std::string>> ReadPromptFile(const std::string& path);

}  // namespace quire::load
