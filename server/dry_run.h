// DryRunJson: the output of --dry-run. CheckText: its check of tokenizer and chat template.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/engine_setup.h"
#include "server/config/config_flags.h"

namespace quire {

// Reads the tokenizer and the chat templates of TextDirectory, or the template in `file` if it is
// not empty, as the server does at its start. "usable", "none", or the reason why chat requests
// will be refused; an error when the server could not start with this tokenizer or file.
absl::StatusOr<std::string> CheckText(const std::string& directory, const std::string& file);

// JSON of every setting as it would be used (each "auto" and 0 resolved), the source of each
// that was given, the device and why --device auto took it, the model with the state of its chat
// template, and the memory plan.
std::string DryRunJson(const ParsedSettings& parsed, const EngineSetup& setup,
                       const std::string& chat_template);

}  // namespace quire
