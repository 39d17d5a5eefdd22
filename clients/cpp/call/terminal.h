// Terminal: the streams of a command of `quire`, and its folder for what it keeps between runs.
#pragma once

#include <istream>
#include <ostream>
#include <string>

namespace quire::cli {

struct Terminal {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool typed = false;        // a person types at `in`, and is prompted on `err`
  bool console = false;      // `in` is the terminal of this process, whose lines can be edited
  std::string state_folder;  // history and transcripts of `quire chat`; empty: nothing is kept
};

}  // namespace quire::cli
