// RunQuire: the whole `quire` command behind main, with its streams and its ctrl-C passed in.
#pragma once

#include <string>
#include <vector>

#include "clients/cpp/call/interrupt.h"
#include "clients/cpp/call/terminal.h"

namespace quire::cli {

// Parses `args` (without the program's name), runs the command and returns the process's exit code.
// Blocks until the command is done or `interrupt` is raised.
int RunQuire(const std::vector<std::string>& args, Terminal& terminal, Interrupt& interrupt);

}  // namespace quire::cli
