// FormatDuration: seconds as people read them, a number and its unit.
#pragma once

#include <string>

namespace quire::cli {

// "250 ms", "3.14 s", "59.9 min", "24 h", "3 d": three digits, in the unit that shows most of them.
std::string FormatDuration(double seconds);

}  // namespace quire::cli
