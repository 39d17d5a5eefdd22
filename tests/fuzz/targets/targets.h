// FuzzTarget: all fuzz targets by name, for quire_fuzz and for the tests of their corpora.
#pragma once

#include <span>
#include <string_view>

namespace quire {

struct FuzzTarget {
  const char* name;               // of its file in tests/fuzz/corpora
  void (*run)(std::string_view);  // takes any bytes; aborts if a contract is broken
};

std::span<const FuzzTarget> FuzzTargets();
// Null for a name that no target has.
const FuzzTarget* FindFuzzTarget(std::string_view name);

}  // namespace quire
