// RunTokenize, RunDetokenize: text to token ids and back, by the server's tokenizer.
#pragma once

#include <istream>
#include <optional>
#include <string>

#include "clients/cpp/call/connection.h"
#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// The argument, or all of `in` when there is none or it is "-". One line end at the very end of
// `in` is the shell's, not the prompt's, and is dropped.
std::string ReadText(const std::optional<std::string>& argument, std::istream& in);

// Each returns the exit code.
int RunTokenize(const Invocation& line, Connection& connection, Terminal& terminal);
int RunDetokenize(const Invocation& line, Connection& connection, Terminal& terminal);

}  // namespace quire::cli
