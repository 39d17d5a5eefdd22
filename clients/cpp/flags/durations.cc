// One table of units, read in both directions.
#include "clients/cpp/flags/durations.h"

#include <cmath>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
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

std::optional<double> SecondsOf(const std::string& unit) {
  if (unit.empty()) return 1;
  if (unit == "m") return 60;
  for (const Unit& known : kUnits) {
    if (unit == known.name) return known.seconds;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> ParseDuration(const std::string& text) {
  const size_t number_end = text.find_last_of("0123456789.") + 1;  // 0 when there is none
  double number = 0;
  if (!absl::SimpleAtod(text.substr(0, number_end), &number)) return std::nullopt;
  const std::string unit(absl::StripAsciiWhitespace(text.substr(number_end)));
  const std::optional<double> scale = SecondsOf(unit);
  if (!scale || !std::isfinite(number) || number < 0) return std::nullopt;
  return number * *scale;
}

std::string FormatDuration(double seconds) {
  const Unit* unit = std::begin(kUnits);
  while (seconds >= unit->until) ++unit;
  return absl::StrFormat("%.3g %s", seconds / unit->seconds, unit->name);
}

}  // namespace quire::cli
