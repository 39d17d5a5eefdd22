// Numbers between colons and commas.
#include "clients/load/option_values.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace quire::load {
namespace {

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// The range of "A:B"; "A" means "A:A".
std::optional<Range> ParsePair(const std::string& text) {
  const std::vector<std::string> parts = Split(text, ':');
  if (parts.size() > 2) return std::nullopt;
  const auto low = ParseNumber(parts.front()), high = ParseNumber(parts.back());
  if (!low || !high || *low < 0 || *low > *high) return std::nullopt;
  return Range{*low, *high};
}

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string Unquoted(const std::string& text) {
  const bool quoted = text.size() > 1 && text.front() == '"' && text.back() == '"';
  return quoted ? text.substr(1, text.size() - 2) : text;
}

std::optional<double> ParseWithin(const std::string& text, double lowest, double highest) {
  const auto value = ParseNumber(text);
  return value && *value >= lowest && *value <= highest ? value : std::nullopt;
}

std::optional<int32_t> ParseWhole(const std::string& text, double lowest, double highest) {
  const auto value = ParseWithin(text, lowest, highest);
  if (!value || *value != std::floor(*value)) return std::nullopt;
  return static_cast<int32_t>(*value);
}

bool IsCount(double value) { return value == std::floor(value) && value <= 1 << 30; }

}  // namespace

std::optional<double> ParseNumber(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || read != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<double> ParseRate(const std::string& text) {
  if (text == "inf") return std::numeric_limits<double>::infinity();
  const auto value = ParseNumber(text);
  return value && *value > 0 ? value : std::nullopt;
}

std::optional<double> ParsePositive(const std::string& text) {
  const auto value = ParseNumber(text);
  return value && *value > 0 ? value : std::nullopt;
}

std::optional<int32_t> ParseConcurrency(const std::string& text) {
  return ParseWhole(text, 1, 1'000'000);
}

std::optional<double> ParseTemperature(const std::string& text) {
  return ParseWithin(text, 0, 100);
}

std::optional<double> ParseShare(const std::string& text) {
  if (!text.ends_with('%')) return ParseWithin(text, 0, 1);
  const auto percent = ParseWithin(text.substr(0, text.size() - 1), 0, 100);
  return percent ? std::optional(*percent / 100) : std::nullopt;
}

std::optional<int32_t> ParseTopK(const std::string& text) { return ParseWhole(text, 0, 1 << 30); }

std::optional<LengthSpec> ParseLengthSpec(const std::string& text, int32_t least) {
  const std::vector<std::string> parts = Split(text, ':');
  if (parts.size() == 3 && parts[0] == "normal") {
    const auto mean = ParseNumber(parts[1]), deviation = ParseNumber(parts[2]);
    if (!mean || !deviation || *mean < least || *mean > 1 << 30 || *deviation < 0) {
      return std::nullopt;
    }
    return LengthSpec{LengthSpec::Kind::kNormal, *mean, *deviation};
  }
  const auto range = ParsePair(text);
  if (!range || !IsCount(range->low) || !IsCount(range->high) || range->low < least) {
    return std::nullopt;
  }
  if (range->low == range->high) return LengthSpec{LengthSpec::Kind::kFixed, range->low, 0};
  return LengthSpec{LengthSpec::Kind::kUniform, range->low, range->high};
}

std::optional<Range> ParseRange(const std::string& text) { return ParsePair(text); }

std::optional<std::vector<double>> ParseRates(const std::string& text) {
  std::vector<double> rates;
  for (const std::string& part : Split(text, ',')) {
    const auto rate = ParseNumber(part);
    if (!rate || *rate <= 0) return std::nullopt;
    rates.push_back(*rate);
  }
  return rates;
}

std::optional<std::vector<std::pair<int32_t, double>>> ParsePriorities(const std::string& text) {
  std::vector<std::pair<int32_t, double>> priorities;
  for (const std::string& part : Split(text, ',')) {
    const std::vector<std::string> words = Split(part, ':');
    const auto priority = ParseNumber(words.front()), weight = ParseNumber(words.back());
    if (words.size() != 2 || !priority || !weight || std::abs(*priority) > 100 ||
        *priority != std::floor(*priority) || *weight <= 0) {
      return std::nullopt;
    }
    priorities.emplace_back(static_cast<int32_t>(*priority), *weight);
  }
  return priorities;
}

std::optional<SessionUse> ParseSessionUse(const std::string& text) {
  if (text == "auto") return SessionUse::kAuto;
  if (text == "on") return SessionUse::kOn;
  if (text == "off") return SessionUse::kOff;
  return std::nullopt;
}

std::optional<GoodputLimits> ParseGoodput(const std::vector<std::string>& words) {
  GoodputLimits limits;
  for (const std::string& word : words) {
    const std::vector<std::string> parts = Split(word, ':');
    const auto value = ParseNumber(parts.back());
    if (parts.size() != 2 || !value || *value <= 0) return std::nullopt;
    if (parts[0] == "ttft") {
      limits.ttft_ms = *value;
    } else if (parts[0] == "tpot") {
      limits.tpot_ms = *value;
    } else if (parts[0] == "e2el") {
      limits.e2e_ms = *value;
    } else {
      return std::nullopt;
    }
  }
  return limits;
}

std::optional<std::pair<std::string, std::string>> ParseMetadata(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  return std::pair{text.substr(0, equals), text.substr(equals + 1)};
}

std::optional<ConfigLine> ParseConfigLine(const std::string& text) {
  ConfigLine line;
  const std::string whole = Trimmed(text);
  if (whole.empty() || whole.front() == '#') return line;
  const size_t equals = whole.find('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  line.name = Trimmed(whole.substr(0, equals));
  const std::string value = Trimmed(whole.substr(equals + 1));
  if (!value.starts_with('[')) {
    line.values = {Unquoted(value)};
    return line;
  }
  if (!value.ends_with(']')) return std::nullopt;
  for (const std::string& word : Split(value.substr(1, value.size() - 2), ',')) {
    line.values.push_back(Unquoted(Trimmed(word)));
  }
  return line;
}

}  // namespace quire::load
