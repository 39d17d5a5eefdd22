// RunChat: `quire chat`, a talk with the model, line by line.
#pragma once

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/interrupt.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// Reads lines until ctrl-D, the end of the input or /quit. On a terminal ctrl-C ends the answer, or
// drops the line, and a turn that fails does not end the talk; without one it does. Returns the
// exit code.
int RunChat(const Invocation& line, Connection& connection, Terminal& terminal,
            Interrupt& interrupt);

}  // namespace quire::cli
