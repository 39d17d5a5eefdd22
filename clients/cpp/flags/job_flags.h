// The flags of `quire job VERB`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "flags/program.h"

namespace quire::cli {

struct JobFlags {
  std::string verb;                 // "create", "get", ... as typed
  std::string file;                 // of create; "-": stdin
  std::optional<std::string> name;  // absent: the server chooses one
  std::optional<int32_t> priority;
  std::optional<double> expires_after_seconds;
  bool wait = false;  // create: print the results as they come
  uint64_t offset = 0;
  bool no_wait = false;  // results: those that there are
};

flags::Command JobCommand(JobFlags* flags);

}  // namespace quire::cli
