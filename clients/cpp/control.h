// RunInfo, RunHealth, RunAbort, RunDrain, RunFlush: the state of a server, and the calls that end
// its work or drop its KV.
#pragma once

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// Each returns the exit code.
int RunInfo(const Invocation& line, Connection& connection, Terminal& terminal);
// kExitLocal when the server says NOT_SERVING.
int RunHealth(const Invocation& line, Connection& connection, Terminal& terminal);
int RunAbort(const Invocation& line, Connection& connection, Terminal& terminal);
int RunDrain(const Invocation& line, Connection& connection, Terminal& terminal);
int RunFlush(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
