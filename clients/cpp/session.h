// RunSession: `quire session ...`, the conversations that a server keeps.
#pragma once

#include "clients/cpp/connection.h"
#include "clients/cpp/invocation.h"
#include "clients/cpp/quire.h"

namespace quire::cli {

// Returns the exit code.
int RunSession(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
