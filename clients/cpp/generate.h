// RunGenerate: `quire generate`, a completion printed while it arrives. RunAttach: `quire attach`,
// the rest of one whose connection was lost.
#pragma once

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// Both return the exit code.
int RunGenerate(const Invocation& line, Connection& connection, Terminal& terminal);
int RunAttach(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
