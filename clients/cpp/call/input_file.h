// InputFile: a file that a command reads, or its stdin.
#pragma once

#include <fstream>
#include <string>

#include "clients/cpp/call/terminal.h"

namespace quire::cli {

class InputFile {
 public:
  // `path` "-": the terminal's input. Prints why it cannot be read, and returns null. The stream
  // lives as long as this and the terminal.
  std::istream* Open(const std::string& path, Terminal& terminal);

 private:
  std::ifstream file_;
};

}  // namespace quire::cli
