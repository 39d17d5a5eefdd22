// The flags of `quire key VERB`, and their table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flags/program.h"

namespace quire::cli {

struct KeyFlags {
  std::string verb;  // "new", "list", "revoke", as typed
  std::string file;  // the server's --api-keys; empty: the entry is printed alone
  std::string tenant;
  std::vector<std::string> scopes = {"infer", "session"};
  std::vector<std::string> models;              // empty: all
  std::optional<double> expires_after_seconds;  // none: never
  std::string note;
  std::string id;  // of revoke
};

flags::Command KeyCommand(KeyFlags* flags);

}  // namespace quire::cli
