// NearestName: the name that a mistyped one was probably meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire::flags {

struct NameChoice {
  std::string_view name;   // compared with
  std::string_view shown;  // in messages; an alias shows the flag's own name
};

// The choice with the fewest edits from `name` (a letter added, dropped or replaced, two swapped),
// as shown; empty when the nearest is further than a quarter of the name's letters, or one edit if
// that is more. Names of fewer than three letters are near nothing.
std::string NearestName(std::string_view name, const std::vector<NameChoice>& choices);

}  // namespace quire::flags
