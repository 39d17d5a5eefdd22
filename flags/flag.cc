// Values as people write them: numbers with units, words with other spellings, switches, lists.
#include "flags/flag.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <span>
#include <type_traits>

namespace quire::flags {
namespace {

struct Suffix {
  std::string_view text;
  double factor;
};
// Longer ones first: "MiB" before "B".
constexpr Suffix kByteSuffixes[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                                    {"TiB", 0x1p40}, {"kB", 1e3},     {"KB", 1e3},
                                    {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
// As vLLM's --max-model-len has them: small letters count in 1000s, capitals in 1024s.
constexpr Suffix kCountSuffixes[] = {{"k", 1e3},    {"m", 1e6},    {"g", 1e9},    {"t", 1e12},
                                     {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}, {"T", 0x1p40}};
constexpr Suffix kTimeSuffixes[] = {{"min", 60}, {"ms", 1e-3}, {"s", 1},
                                    {"m", 60},   {"h", 3600},  {"d", 86400}};
constexpr Suffix kShareSuffixes[] = {{"%", 0.01}};

// Takes a known suffix off `text`; the factor it stands for, 0 when there is none.
double TakeSuffix(std::string_view& text, std::span<const Suffix> suffixes) {
  for (const Suffix& suffix : suffixes) {
    if (!text.ends_with(suffix.text)) continue;
    text.remove_suffix(suffix.text.size());
    while (text.ends_with(' ')) text.remove_suffix(1);
    return suffix.factor;
  }
  return 0;
}

// Takes the unit off `text`; the factor it stands for, 1 when there is none.
double TakeUnit(Unit unit, std::string_view& text) {
  double factor = 0;
  switch (unit) {
    case Unit::kNone: break;
    case Unit::kCount: factor = TakeSuffix(text, kCountSuffixes); break;
    case Unit::kBytes:
    case Unit::kGibibytes:
      factor = TakeSuffix(text, kByteSuffixes);
      if (factor == 0) factor = TakeSuffix(text, kCountSuffixes);
      if (unit == Unit::kGibibytes) factor *= 0x1p-30;
      break;
    case Unit::kSeconds: factor = TakeSuffix(text, kTimeSuffixes); break;
    case Unit::kShare: factor = TakeSuffix(text, kShareSuffixes); break;
  }
  return factor == 0 ? 1 : factor;
}

template <typename T>
bool ReadWhole(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

// The number in `text`, its unit applied.
std::optional<double> ReadNumber(Unit unit, std::string_view text) {
  const double factor = TakeUnit(unit, text);
  double number = 0;
  if (!ReadWhole(text, &number)) return std::nullopt;
  // Divided where that is exact: 90% is 0.9, and not 90 times a rounded 0.01.
  return factor < 1 && factor >= 1e-3 ? number / std::round(1 / factor) : number * factor;
}

// False for NaN, unless the flag leaves it to another to judge.
bool IsWithin(const Flag& flag, double value) {
  if (flag.lowest == 0 && flag.highest == 0) return true;
  return value >= flag.lowest && value <= flag.highest;
}

std::string NumberText(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", number);
  return text;
}

std::string BytesText(double bytes) {
  for (const size_t i : {3, 2, 1, 0}) {
    const double units = bytes / kByteSuffixes[i].factor;
    if (units >= 1 && units == std::floor(units)) {
      return NumberText(units) + " " + std::string(kByteSuffixes[i].text);
    }
  }
  return NumberText(bytes);
}

// Seconds: a bound that only keeps arithmetic safe, so that the range is shown as open.
constexpr double kOpenEnd = 1e9;

template <typename T>
std::string RangeText(const Flag& flag) {
  if (flag.lowest == 0 && flag.highest == 0) {
    if constexpr (std::is_integral_v<T>) {
      return std::to_string(std::numeric_limits<T>::min()) + " to " +
             std::to_string(std::numeric_limits<T>::max());
    }
    return "";
  }
  if (flag.unit == Unit::kBytes) return BytesText(flag.lowest) + " to " + BytesText(flag.highest);
  const char* unit = flag.unit == Unit::kGibibytes ? " GiB"
                     : flag.unit == Unit::kSeconds ? " s"
                                                   : "";
  if (flag.unit == Unit::kSeconds && flag.highest >= kOpenEnd)
    return NumberText(flag.lowest) + unit + " or more";
  return NumberText(flag.lowest) + " to " + NumberText(flag.highest) + unit;
}

std::string_view UnitForms(Unit unit) {
  switch (unit) {
    case Unit::kNone: return "";
    case Unit::kCount: return "; 32k is 32000, 32K is 32768";
    case Unit::kBytes: return ", in bytes or with MB, GB, TB or KiB, MiB, GiB, TiB";
    case Unit::kGibibytes: return ", or with MB, GB, TB or MiB, GiB, TiB";
    case Unit::kSeconds: return ", in seconds or as 250ms, 90s, 30m, 2h, 1d";
    case Unit::kShare: return ", or a percentage such as 90%";
  }
  return "";
}

template <typename T>
absl::Status NotANumber(const Flag& flag) {
  std::string sentence = "must be ";
  sentence += std::is_integral_v<T> ? "a whole number" : "a number";
  const std::string range = RangeText<T>(flag);
  if (!range.empty()) sentence += ", " + range;
  return absl::InvalidArgumentError(sentence + std::string(UnitForms(flag.unit)));
}

// Exact for every value of T written in plain digits.
template <typename T>
absl::Status ReadInto(const Flag& flag, const std::string& text, T* target) {
  T value{};
  if constexpr (std::is_integral_v<T>) {
    if (!ReadWhole<T>(text, &value)) {
      // 2^64 as a double is one more than the largest value, and must not be cast.
      constexpr double kEnd = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2;
      const std::optional<double> number = ReadNumber(flag.unit, text);
      const bool fits = number && *number >= static_cast<double>(std::numeric_limits<T>::min()) &&
                        *number < kEnd && *number == std::floor(*number);
      if (!fits) return NotANumber<T>(flag);
      value = static_cast<T>(*number);
    }
  } else {
    const std::optional<double> number = ReadNumber(flag.unit, text);
    if (!number) return NotANumber<T>(flag);
    value = static_cast<T>(*number);
  }
  if (!IsWithin(flag, static_cast<double>(value))) return NotANumber<T>(flag);
  *target = value;
  return absl::OkStatus();
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

std::vector<std::string> Split(std::string_view text, char separator) {
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

absl::Status ReadInto(const Flag& flag, const std::string& text, bool* target) {
  const std::string word = Lower(text);
  const bool on = word == "true" || word == "1" || word == "yes" || word == "on";
  const bool off = word == "false" || word == "0" || word == "no" || word == "off";
  if (!on && !off) return absl::InvalidArgumentError("must be " + AcceptedValues(flag));
  *target = on;
  return absl::OkStatus();
}

absl::Status ReadInto(const Flag& flag, const std::string& text, std::string* target) {
  if (flag.choices.empty()) {
    *target = text;
    return absl::OkStatus();
  }
  for (const std::string& choice : Split(flag.choices, '|')) {
    const std::vector<std::string> spellings = Split(choice, '=');
    if (std::find(spellings.begin(), spellings.end(), Lower(text)) == spellings.end()) continue;
    *target = spellings.front();
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("must be " + AcceptedValues(flag));
}

template <typename T>
absl::Status ReadInto(const Flag& flag, const std::string& text, std::optional<T>* target) {
  T value{};
  absl::Status status = ReadInto(flag, text, &value);
  if (status.ok()) *target = value;
  return status;
}

absl::Status ReadInto(const Flag& flag, const std::string& text, std::vector<std::string>* target) {
  if (!flag.commas) {
    target->push_back(text);
    return absl::OkStatus();
  }
  for (const std::string& part : Split(text, ',')) {
    if (part.empty()) return absl::InvalidArgumentError("must be names, with commas between them");
    target->push_back(part);
  }
  return absl::OkStatus();
}

absl::Status ReadInto(const Flag& flag, const std::string& text, std::vector<uint32_t>* target) {
  for (const std::string& part : Split(text, ',')) {
    uint32_t value = 0;
    if (!ReadWhole(part, &value)) {
      return absl::InvalidArgumentError("must be whole numbers, " + RangeText<uint32_t>(flag) +
                                        ", with commas between them");
    }
    target->push_back(value);
  }
  return absl::OkStatus();
}

absl::Status ReadInto(const Flag& flag, const std::string& text, const TakeText* take) {
  if ((*take)(text)) return absl::OkStatus();
  return absl::InvalidArgumentError("must be " + std::string(flag.wants));
}

template <typename T>
std::string TextOf(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else {
    return NumberText(value);
  }
}

template <typename T>
std::string TextOf(const std::optional<T>& value) {
  return value ? TextOf(*value) : "";
}

template <typename T>
std::string TextOf(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ",") + TextOf(value);
  return text;
}

// The type behind a target: T of T*, and of std::optional<T>*.
template <typename T>
struct Plain {
  using Type = T;
};
template <typename T>
struct Plain<std::optional<T>> {
  using Type = T;
};

}  // namespace

absl::Status SetValue(const Flag& flag, const std::string& text) {
  if (const auto* take = std::get_if<TakeText>(&flag.target)) return ReadInto(flag, text, take);
  return std::visit(
      [&](const auto& target) -> absl::Status {
        if constexpr (std::is_pointer_v<std::decay_t<decltype(target)>>) {
          return ReadInto(flag, text, target);
        }
        return absl::OkStatus();
      },
      flag.target);
}

void ClearList(const Flag& flag) {
  if (const auto* texts = std::get_if<std::vector<std::string>*>(&flag.target)) (*texts)->clear();
  if (const auto* ids = std::get_if<std::vector<uint32_t>*>(&flag.target)) (*ids)->clear();
}

std::string ValueText(const Flag& flag) {
  return std::visit(
      [](const auto& target) -> std::string {
        if constexpr (std::is_pointer_v<std::decay_t<decltype(target)>>) return TextOf(*target);
        return "";
      },
      flag.target);
}

std::string AcceptedValues(const Flag& flag) {
  if (IsSwitch(flag)) return "true or false";
  if (!flag.choices.empty()) {
    std::string words;
    for (const std::string& word : Choices(flag)) words += (words.empty() ? "" : ", ") + word;
    return "one of " + words;
  }
  return std::visit(
      [&](const auto& target) -> std::string {
        using Pointer = std::decay_t<decltype(target)>;
        if constexpr (std::is_pointer_v<Pointer>) {
          using T = typename Plain<std::remove_pointer_t<Pointer>>::Type;
          if constexpr (std::is_arithmetic_v<T>) return RangeText<T>(flag);
          return "";
        }
        return std::string(flag.wants);
      },
      flag.target);
}

std::string Placeholder(const Flag& flag) {
  if (IsSwitch(flag)) return "";
  if (!flag.placeholder.empty()) return std::string(flag.placeholder);
  if (!flag.choices.empty()) return "WORD";
  switch (flag.unit) {
    case Unit::kBytes: return "BYTES";
    case Unit::kGibibytes: return "GIB";
    case Unit::kSeconds: return "SECONDS";
    case Unit::kShare: return "SHARE";
    case Unit::kCount: return "N";
    case Unit::kNone: break;
  }
  const bool text = std::holds_alternative<std::string*>(flag.target) ||
                    std::holds_alternative<std::optional<std::string>*>(flag.target) ||
                    std::holds_alternative<std::vector<std::string>*>(flag.target);
  return text ? "TEXT" : "N";
}

std::vector<std::string> Choices(const Flag& flag) {
  std::vector<std::string> words;
  if (flag.choices.empty()) return words;
  for (const std::string& choice : Split(flag.choices, '|')) {
    words.push_back(Split(choice, '=').front());
  }
  return words;
}

bool IsSwitch(const Flag& flag) { return std::holds_alternative<bool*>(flag.target); }

bool IsList(const Flag& flag) {
  return std::holds_alternative<std::vector<std::string>*>(flag.target) ||
         std::holds_alternative<std::vector<uint32_t>*>(flag.target);
}

}  // namespace quire::flags
