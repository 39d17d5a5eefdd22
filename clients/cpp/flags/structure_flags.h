// StructureFlags: the structure that the output of `quire generate` and `chat` follows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flags/flag.h"

namespace quire::cli {

// At most one is given.
struct StructureFlags {
  std::optional<std::string> json_schema, grammar, lark;  // files
  bool json_object = false;
  std::optional<std::string> regex;
  std::vector<std::string> choices;
};

// `flags` outlives the rows.
std::vector<flags::Flag> StructureRows(StructureFlags* flags);

}  // namespace quire::cli
