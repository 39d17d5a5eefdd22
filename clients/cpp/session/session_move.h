// `quire session move`: sessions with their KV from one server to another, or to the servers behind
// a proxy, each to the one that its turns will go to.
#pragma once

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

int MoveSessions(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
