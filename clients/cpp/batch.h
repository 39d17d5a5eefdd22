// RunBatch: runs `quire batch`, which answers a file of requests now, on calls of its own. A job
// (job/job.h) takes the same file and outlives its call.
#pragma once

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// Returns the exit code: that of the first line that failed, if the calls went well.
int RunBatch(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
