// Terminal: where a command of `quire` reads and writes.
#pragma once

#include <istream>
#include <ostream>

namespace quire::cli {

// Where a command reads and writes.
struct Terminal {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool typed = false;  // a person types at `in`, and is prompted on `err`
};

}  // namespace quire::cli
