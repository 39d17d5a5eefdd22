// ParseSettings: a command line, the environment and a file as one Settings, by the rows of
// config_table.cc. A flag beats the environment, which beats the file, which
// beats the default.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/server_config.h"

namespace quire {

enum class SettingSource { kDefault, kFile, kEnvironment, kFlag };

enum class StartMode { kServe, kDryRun, kCheck, kHelp, kVersion, kManPage, kCompletion };

// The input of the process. main() is the only reader of argv and the environment.
struct Invocation {
  std::vector<std::string> arguments;                            // without the program's name
  std::vector<std::pair<std::string, std::string>> environment;  // QUIRE_* and OTEL_*
};

// One setting with its effective value.
struct EffectiveSetting {
  std::string_view name;
  std::string value;
  SettingSource source = SettingSource::kDefault;
};

struct ParsedSettings {
  StartMode mode = StartMode::kServe;
  std::string answer;  // printed instead of serving: help, version, man page, completion
  Settings settings;
  std::vector<SettingSource> sources;  // in the order of the table
  // One sentence for each spelling that was accepted and has a better one, or has no effect.
  std::vector<std::string> notices;
};

// INVALID_ARGUMENT lists every fault, one a line: unknown names with the nearest valid one, values
// out of bounds, contradictions.
absl::StatusOr<ParsedSettings> ParseSettings(const Invocation& invocation);

// All settings in the order of the table, in the spelling that the flags take.
std::vector<EffectiveSetting> ListSettings(const ParsedSettings& parsed);
const char* Name(SettingSource source);  // "default", "file", "environment", "flag"

}  // namespace quire
