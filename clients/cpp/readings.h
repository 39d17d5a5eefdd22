// RunScore, RunEmbed: run `quire score` and `quire embed`.
#pragma once

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// Each blocks until all items have been printed or the call has failed, and returns the exit code
// (flags/exit_codes.h): that of the first item that failed, if one did.
int RunScore(const Invocation& line, Connection& connection, Terminal& terminal);
int RunEmbed(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
