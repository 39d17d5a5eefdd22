// RunSession: runs `quire session VERB ...`, which lists and changes the sessions of a server.
#pragma once

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// Blocks until the command has ended or was interrupted. Prints answers to the terminal's out and
// failures to its err. Returns the exit code (flags/exit_codes.h).
int RunSession(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
