// Typed reading of JSON fields with faults that name file and key.
#include "engine/model/config/config_reader.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

const nlohmann::json kNull;

// A value as in the file, shortened to fit a line of a message.
std::string Show(const nlohmann::json& value) {
  constexpr size_t kLongest = 80;
  if (value.is_object()) return "an object";
  if (value.is_array() && value.size() > 8) return absl::StrCat("a list of ", value.size());
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

bool IntInRange(const nlohmann::json& value, int64_t min, int64_t max) {
  if (value.is_number_unsigned()) {
    const uint64_t v = value.get<uint64_t>();
    if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
  } else if (!value.is_number_integer()) {
    return false;
  }
  const int64_t v = value.get<int64_t>();
  return min <= v && v <= max;
}

}  // namespace

ConfigReader::ConfigReader(const nlohmann::json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) Fail("not a JSON object");
}

std::vector<std::string> ConfigReader::UnreadKeys() const {
  std::vector<std::string> unread;
  if (!object_.is_object()) return unread;
  for (const auto& [key, value] : object_.items()) {
    if (!asked_.contains(key)) unread.push_back(key);
  }
  return unread;
}

bool ConfigReader::Contains(const char* key) const {
  asked_.insert(key);
  return object_.is_object() && object_.contains(key);
}

bool ConfigReader::Has(const char* key) const { return !At(key).is_null(); }

const nlohmann::json& ConfigReader::At(const char* key) const {
  asked_.insert(key);
  if (!object_.is_object()) return kNull;
  auto it = object_.find(key);
  return it == object_.end() ? kNull : *it;
}

int64_t ConfigReader::Int(const char* key, int64_t min, int64_t max) {
  if (!Has(key)) {
    Fail(absl::StrCat("\"", key, "\" is missing"));
    return min;
  }
  return OptionalInt(key, min, max).value_or(min);
}

std::optional<int64_t> ConfigReader::OptionalInt(const char* key, int64_t min, int64_t max) {
  if (!Has(key)) return std::nullopt;
  if (!IntInRange(At(key), min, max)) {
    Refuse(key, absl::StrCat("an integer from ", min, " to ", max));
    return std::nullopt;
  }
  return At(key).get<int64_t>();
}

double ConfigReader::Number(const char* key, double min, double max) {
  if (!Has(key)) {
    Fail(absl::StrCat("\"", key, "\" is missing"));
    return min;
  }
  return OptionalNumber(key, min, max).value_or(min);
}

std::optional<double> ConfigReader::OptionalNumber(const char* key, double min, double max) {
  if (!Has(key)) return std::nullopt;
  const nlohmann::json& value = At(key);
  const double v = value.is_number() ? value.get<double>() : std::nan("");
  if (!(min <= v && v <= max)) {
    Refuse(key, absl::StrCat("a number from ", min, " to ", max));
    return std::nullopt;
  }
  return v;
}

bool ConfigReader::Bool(const char* key, bool fallback) {
  if (!Has(key)) return fallback;
  if (!At(key).is_boolean()) {
    Refuse(key, "true or false");
    return fallback;
  }
  return At(key).get<bool>();
}

std::string ConfigReader::String(const char* key, const std::string& fallback) {
  if (!Has(key)) return fallback;
  if (!At(key).is_string()) {
    Refuse(key, "a string");
    return fallback;
  }
  return At(key).get<std::string>();
}

std::vector<int64_t> ConfigReader::IntList(const char* key, int64_t min, int64_t max) {
  if (!Has(key)) return {};
  const nlohmann::json& value = At(key);
  std::vector<int64_t> result;
  for (const nlohmann::json& item : value.is_array() ? value : nlohmann::json::array({value})) {
    if (!IntInRange(item, min, max)) {
      Refuse(key, absl::StrCat("an integer, or a list of them, from ", min, " to ", max));
      return {};
    }
    result.push_back(item.get<int64_t>());
  }
  return result;
}

std::vector<double> ConfigReader::NumberList(const char* key, double min, double max) {
  if (!Has(key)) {
    Fail(absl::StrCat("\"", key, "\" is missing"));
    return {};
  }
  std::vector<double> result;
  for (const nlohmann::json& item : At(key)) {
    const double v = item.is_number() ? item.get<double>() : std::nan("");
    if (!At(key).is_array() || !(min <= v && v <= max)) {
      Refuse(key, absl::StrCat("a list of numbers from ", min, " to ", max));
      return {};
    }
    result.push_back(v);
  }
  return result;
}

void ConfigReader::Refuse(const char* key, const std::string& supported) {
  Fail(absl::StrCat("\"", key, "\" is ", Show(At(key)), "; supported: ", supported));
}

void ConfigReader::Fail(const std::string& message) {
  faults_.Add(absl::StrCat(where_, ": ", message));
}

void ConfigReader::Adopt(const absl::Status& status) { faults_.Add(status); }

}  // namespace quire
