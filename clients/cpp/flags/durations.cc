// One table of units.
#include "clients/cpp/flags/durations.h"

#include <cmath>
#include <iterator>

#include "absl/strings/str_format.h"

namespace quire::cli {
namespace {

struct Unit {
  const char* name;
  double seconds;
  double until;  // written in this unit below so many seconds
};
constexpr Unit kUnits[] = {{"ms", 1e-3, 1},
                           {"s", 1, 100},
                           {"min", 60, 100 * 60},
                           {"h", 3600, 48 * 3600},
                           {"d", 86400, INFINITY}};

}  // namespace

std::string FormatDuration(double seconds) {
  const Unit* unit = std::begin(kUnits);
  while (seconds >= unit->until) ++unit;
  return absl::StrFormat("%.3g %s", seconds / unit->seconds, unit->name);
}

}  // namespace quire::cli
