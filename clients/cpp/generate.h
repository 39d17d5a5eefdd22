// RunGenerate: `quire generate`, a completion printed while it arrives.
#pragma once

#include "clients/cpp/connection.h"
#include "clients/cpp/invocation.h"
#include "clients/cpp/quire.h"

namespace quire::cli {

// Returns the exit code.
int RunGenerate(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
