// The values of flags that are more than a number, and the lines of a file of flags. Each parser
// returns nothing for a text of another form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "clients/load/values/run_record.h"
#include "clients/load/values/settings.h"

namespace quire::load {

// A finite number, the whole text.
std::optional<double> ParseNumber(const std::string& text);
// A number above 0, or "inf".
std::optional<double> ParseRate(const std::string& text);
// A number above 0.
std::optional<double> ParsePositive(const std::string& text);
// A whole number from 1 to 1,000,000.
std::optional<int32_t> ParseConcurrency(const std::string& text);
// A number from 0 to 100; from 0 to 1; a whole number from 0 up.
std::optional<double> ParseTemperature(const std::string& text);
std::optional<double> ParseShare(const std::string& text);
std::optional<int32_t> ParseTopK(const std::string& text);
// "512", "128:512" (uniform, both included) or "normal:512:64" (mean, deviation); whole tokens,
// none below `least` but by the normal distribution's tail, which is cut there.
std::optional<LengthSpec> ParseLengthSpec(const std::string& text, int32_t least);
// Seconds: "2" or "0.5:2".
std::optional<Range> ParseRange(const std::string& text);
// "1,4,16": numbers above 0.
std::optional<std::vector<double>> ParseRates(const std::string& text);
// "0:0.9,10:0.1": priority in [-100, 100] and its weight, above 0.
std::optional<std::vector<std::pair<int32_t, double>>> ParsePriorities(const std::string& text);
// "auto", "on" or "off".
std::optional<SessionUse> ParseSessionUse(const std::string& text);
// {"ttft:500", "tpot:30", "e2el:1000"}: milliseconds above 0.
std::optional<GoodputLimits> ParseGoodput(const std::vector<std::string>& words);
// "KEY=VALUE", the key not empty.
std::optional<std::pair<std::string, std::string>> ParseMetadata(const std::string& text);

// One line of a file of flags: no values for an empty line or a comment.
struct ConfigLine {
  std::string name;
  std::vector<std::string> values;
};
// "num-prompts=100", "lengths = \"azure-code\"", "goodput=[\"ttft:3\", \"tpot:5\"]", "# a comment".
std::optional<ConfigLine> ParseConfigLine(const std::string& text);

}  // namespace quire::load
