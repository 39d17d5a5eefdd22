// RunMemory: the memory of a server: its plan, the KV of both tiers by owner, and its use over
// time.
#pragma once

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// Returns the exit code. With --watch it asks every second, until a call fails or the process is
// interrupted.
int RunMemory(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
