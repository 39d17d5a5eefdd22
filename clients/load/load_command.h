// RunLoadCommand: all of quire-load but main, with its streams and its ctrl-C passed in.
#pragma once

#include <ostream>
#include <stop_token>
#include <string>
#include <vector>

namespace quire::load {

// `args` without the program's name. Reports go to `out` and to files, progress and complaints to
// `err`, which is a `terminal` or not. Returns the exit code of options.h.
int RunLoadCommand(const std::vector<std::string>& args, std::stop_token stop, std::ostream& out,
                   std::ostream& err, bool terminal);

}  // namespace quire::load
