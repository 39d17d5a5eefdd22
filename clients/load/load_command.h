// RunLoadCommand: all of quire-load but main, with its streams and its ctrl-C passed in.
#pragma once

#include <ostream>
#include <stop_token>
#include <string>
#include <vector>

#include "clients/connect/settings.h"

namespace quire::load {

// The streams of a run, and the variables of its environment that settings may come from.
struct LoadTerminal {
  std::ostream& out;
  std::ostream& err;
  bool live = false;  // `err` is a terminal
  connect::Environment environment = {};
};

// `args` without the program's name. Reports go to `out` and to files, progress and complaints to
// `err`. Returns the exit code of options.h.
int RunLoadCommand(const std::vector<std::string>& args, std::stop_token stop,
                   const LoadTerminal& terminal);

}  // namespace quire::load
