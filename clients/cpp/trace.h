// RunTrace: a recording of what the server does, and where the time of its steps goes.
#pragma once

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// Returns the exit code.
int RunTrace(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
