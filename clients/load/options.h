// ParseOptions: the command line of quire-load as Settings. Flags have the names of vLLM's serve
// benchmark where it has one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "clients/connect/settings.h"
#include "clients/load/values/settings.h"

namespace quire::load {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;   // nothing run, or a run failed, partial or invalid
inline constexpr int kExitUsage = 2;    // a mistake on the command line
inline constexpr int kExitRefused = 6;  // the system refuses memory or threads

// The end of a parse: settings to run, or an exit code. `out` and `err` are printed in either case.
struct ParsedOptions {
  std::optional<Settings> settings;
  int exit_code = kExitOk;  // kExitOk for --help and --version, kExitUsage for a mistake
  std::string out, err;
};

// `args` without the program's name. Progress is kLive with `terminal`, unless --quiet. Settings of
// the connection may come from `environment`.
ParsedOptions ParseOptions(const std::vector<std::string>& args, bool terminal,
                           const connect::Environment& environment = {});

}  // namespace quire::load
