// Durations as people write and read them: a number and its unit.
#pragma once

#include <optional>
#include <string>

namespace quire::cli {

// Seconds of "90", "90s", "250ms", "30m", "30 min", "1.5h" or "2d"; nothing when it is another
// word, negative or not finite.
std::optional<double> ParseDuration(const std::string& text);

// "250 ms", "3.14 s", "59.9 min", "24 h", "3 d": three digits, in the unit in which they say most.
std::string FormatDuration(double seconds);

}  // namespace quire::cli
