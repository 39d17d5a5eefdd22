// Terminal: the streams of a command of `quire`, its folder between runs, and its place in a trace.
#pragma once

#include <istream>
#include <ostream>
#include <string>

#include "clients/connect/settings.h"

namespace quire::cli {

struct Terminal {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool typed = false;        // a person types at `in`, and is prompted on `err`
  bool console = false;      // `in` is the terminal of this process, whose lines can be edited
  std::string state_folder;  // history and transcripts of `quire chat`; empty: nothing is kept
  std::string traceparent;   // of the program that started this one; empty: none
  std::string server;        // as dialled, set by RunQuire
  connect::Environment environment;  // settings of the connection
};

}  // namespace quire::cli
