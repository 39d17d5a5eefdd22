// FlushFlags: the flags of `quire flush`.
#pragma once

#include <optional>
#include <string>

namespace quire::cli {

struct FlushFlags {
  bool sessions = false;              // the KV of idle sessions too
  std::optional<std::string> tenant;  // absent: all tenants
};

}  // namespace quire::cli
