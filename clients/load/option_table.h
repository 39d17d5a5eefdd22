// LoadProgram: the table of quire-load.
#pragma once

#include <string>
#include <vector>

#include "clients/connect/settings.h"
#include "clients/load/values/settings.h"
#include "flags/program.h"

namespace quire::load {

// The targets of the rows: settings, and words that are parsed once all of their kind are there.
struct OptionWords {
  Settings settings;
  connect::ConnectionFlags connection;
  std::string config_path;
  std::string ramp = "none";  // none, linear, exponential
  std::vector<std::string> goodput, metadata;
  bool quiet = false;
};

// The rows set `words`, which outlives the program.
flags::Program LoadProgram(OptionWords* words);

}  // namespace quire::load
