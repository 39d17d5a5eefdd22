// RunQuire: runs the `quire` command. main passes the terminal's streams and the ctrl-C.
#pragma once

#include <string>
#include <vector>

#include "clients/cpp/call/interrupt.h"
#include "clients/cpp/call/terminal.h"

namespace quire::cli {

// Parses `args` (without the program's name), runs the command and returns the process's exit code.
// Blocks until the command ends. A Raise ends the RPC in progress; `quire chat` then goes on, every
// other command ends. The exit codes are in flags/exit_codes.h.
int RunQuire(const std::vector<std::string>& args, Terminal& terminal, Interrupt& interrupt);

}  // namespace quire::cli
