// RunQuire: the whole `quire` command behind main, with its streams and its ctrl-C passed in.
#pragma once

#include <istream>
#include <ostream>
#include <string>
#include <vector>

#include "clients/cpp/interrupt.h"

namespace quire::cli {

// Where a command reads and writes.
struct Terminal {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool typed = false;  // a person types at `in`, and is prompted on `err`
};

// Parses `args` (without the program's name), runs the command and returns the process's exit code.
// Blocks until the command is done or `interrupt` is raised.
int RunQuire(const std::vector<std::string>& args, Terminal& terminal, Interrupt& interrupt);

}  // namespace quire::cli
