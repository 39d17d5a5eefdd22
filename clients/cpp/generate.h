// RunGenerate: `quire generate`, a completion printed while it arrives.
#pragma once

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// Returns the exit code.
int RunGenerate(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
