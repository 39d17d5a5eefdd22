// RunTokenize, RunDetokenize: run `quire tokenize` and `quire detokenize`; the server converts.
#pragma once

#include <istream>
#include <optional>
#include <string>

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// Returns the argument. If it is absent or "-", reads `in` to its end and drops one final newline,
// which the shell added.
std::string ReadText(const std::optional<std::string>& argument, std::istream& in);

// Each blocks until the answer has been printed or failed, and returns the exit code
// (flags/exit_codes.h).
int RunTokenize(const Invocation& line, Connection& connection, Terminal& terminal);
int RunDetokenize(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
