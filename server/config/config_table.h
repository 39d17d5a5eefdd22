// The table of settings: each row is a flag, a QUIRE_ variable, a key of the config file, a line of
// --help, a key of --dry-run and a line of docs/configuration.md. To add a setting: a member of
// EngineConfig or ServerConfig, a row here, and the line in the document that the test asks for.
#pragma once

#include <vector>

#include "flags/program.h"
#include "server/config/server_config.h"

namespace quire {

// The rows in the order of --help. Their targets lie in `settings`, which outlives them.
std::vector<flags::Flag> SettingsTable(Settings* settings);

// The program quire-server: the rows and `config_path`, the file of --config. Both outlive it.
flags::Program ServerProgram(Settings* settings, std::string* config_path);

}  // namespace quire
