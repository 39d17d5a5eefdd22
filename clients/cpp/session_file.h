// ExportSession, ImportSession: a session as a file, streamed in pieces.
#pragma once

#include "clients/cpp/connection.h"
#include "clients/cpp/invocation.h"
#include "clients/cpp/quire.h"

namespace quire::cli {

// Each returns the exit code. A file that exists is replaced only by a whole export.
int ExportSession(const Invocation& line, Connection& connection, Terminal& terminal);
int ImportSession(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
