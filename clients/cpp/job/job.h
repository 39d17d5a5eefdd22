// `quire job`: create, list, get, results, cancel, delete.
#pragma once

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// Returns the exit code.
int RunJob(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
