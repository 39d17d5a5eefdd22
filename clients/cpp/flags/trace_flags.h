// TraceFlags: the flags of `quire trace`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace quire::cli {

struct TraceFlags {
  std::optional<double> seconds;
  std::optional<uint32_t> profile_steps;  // for attached profilers
  bool uncaptured = false;                // these steps
  std::string out = "quire-trace.json";   // "-": stdout
};

}  // namespace quire::cli
