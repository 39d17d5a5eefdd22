// ExportSession, ImportSession: a session as a file, streamed in pieces.
#pragma once

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// Each returns the exit code. A file that exists is replaced only by a whole export.
int ExportSession(const Invocation& line, Connection& connection, Terminal& terminal);
int ImportSession(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
