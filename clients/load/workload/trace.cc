// The two forms of trace files, read line by line.
#include "clients/load/workload/trace.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace quire::load {
namespace {

using Json = nlohmann::json;

constexpr char kCsvHeader[] = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr double kLongestPrompt = 1 << 30;

// The fault of a line; empty if it has none.
using Fault = std::string;

Fault TakeLength(const Json& row, const char* field, int32_t* length) {
  const auto found = row.find(field);
  if (found == row.end()) return absl::StrCat("has no \"", field, "\"");
  if (!found->is_number_integer() || found->get<double>() < 1 ||
      found->get<double>() > kLongestPrompt) {
    return absl::StrCat("\"", field, "\" is ", found->dump(),
                        ", which is no whole number of tokens from 1 up");
  }
  *length = found->get<int32_t>();
  return "";
}

Fault TakeTime(const Json& row, double* seconds) {
  const bool milliseconds = row.contains("timestamp");
  const char* field = milliseconds ? "timestamp" : "arrival_s";
  const auto found = row.find(field);
  if (found == row.end()) return "has neither \"timestamp\" nor \"arrival_s\"";
  if (!found->is_number() || !std::isfinite(found->get<double>())) {
    return absl::StrCat("\"", field, "\" is ", found->dump(), ", which is no number");
  }
  *seconds = found->get<double>() * (milliseconds ? 1e-3 : 1);
  return "";
}

Fault TakeHashIds(const Json& row, int32_t block, TraceRow* out) {
  const auto found = row.find("hash_ids");
  if (found == row.end()) return "";
  if (!found->is_array()) return "\"hash_ids\" is no list";
  for (const Json& id : *found) {
    if (!id.is_number_integer()) {
      return absl::StrCat("\"hash_ids\" holds ", id.dump(), ", which is no whole number");
    }
    out->hash_ids.push_back(id.get<int64_t>());
  }
  const int64_t blocks = (static_cast<int64_t>(out->input_length) + block - 1) / block;
  if (static_cast<int64_t>(out->hash_ids.size()) == blocks) return "";
  return absl::StrCat("has ", out->hash_ids.size(), " hash_ids, but ", out->input_length,
                      " tokens are ", blocks, " blocks of ", block,
                      "; give the trace's own block size with --trace-block");
}

Fault ParseJsonRow(const std::string& line, int32_t block, TraceRow* out) {
  const Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!row.is_object()) return "is no JSON object";
  Fault fault = TakeTime(row, &out->arrival_seconds);
  if (fault.empty()) fault = TakeLength(row, "input_length", &out->input_length);
  if (fault.empty()) fault = TakeLength(row, "output_length", &out->output_length);
  if (fault.empty()) fault = TakeHashIds(row, block, out);
  return fault;
}

// Days since 1970-01-01 of the proleptic Gregorian calendar, counted in eras of 400 years that
// begin in March.
int64_t DaysFromCivil(int64_t year, int month, int day) {
  year -= month <= 2;
  const int64_t era = (year >= 0 ? year : year - 399) / 400;
  const int64_t year_of_era = year - era * 400;
  const int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146097 + day_of_era - 719468;
}

// "2023-11-16 18:15:46.6805900", its sign and zone left out.
std::optional<double> ParseTimestamp(const std::string& text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, read = 0;
  double second = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2d %2d:%2d:%lf%n", &year, &month, &day, &hour, &minute,
                  &second, &read) != 6 ||
      static_cast<size_t>(read) > text.size() || month < 1 || month > 12 || day < 1 || day > 31 ||
      hour > 23 || minute > 59 || !(second >= 0 && second < 61)) {
    return std::nullopt;
  }
  return static_cast<double>(DaysFromCivil(year, month, day)) * 86400 + hour * 3600 + minute * 60 +
         second;
}

Fault TakeCsvLength(const std::string& text, const char* column, int32_t* length) {
  char* end = nullptr;
  errno = 0;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || errno != 0 || value != std::floor(value) || value < 1 ||
      value > kLongestPrompt) {
    return absl::StrCat(column, " is \"", text, "\", which is no whole number of tokens from 1 up");
  }
  *length = static_cast<int32_t>(value);
  return "";
}

Fault ParseCsvRow(const std::string& line, TraceRow* out) {
  const size_t first = line.find(',');
  const size_t second = first == std::string::npos ? first : line.find(',', first + 1);
  if (second == std::string::npos || line.find(',', second + 1) != std::string::npos) {
    return absl::StrCat("has not the three columns ", kCsvHeader);
  }
  const std::string time = line.substr(0, first);
  const std::optional<double> seconds = ParseTimestamp(time);
  if (!seconds) return absl::StrCat("TIMESTAMP is \"", time, "\", not like 2023-11-16 18:15:46.68");
  out->arrival_seconds = *seconds;
  Fault fault = TakeCsvLength(line.substr(first + 1, second - first - 1), "ContextTokens",
                              &out->input_length);
  if (fault.empty()) {
    fault = TakeCsvLength(line.substr(second + 1), "GeneratedTokens", &out->output_length);
  }
  return fault;
}

absl::Status FaultAt(const std::string& path, int64_t line, const Fault& fault) {
  return absl::InvalidArgumentError(absl::StrCat("the trace ", path, ", line ", line, " ", fault));
}

}  // namespace

absl::StatusOr<std::vector<TraceRow>> ReadTrace(const std::string& path, int32_t block) {
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("the trace ", path, " cannot be opened: ", std::strerror(errno)));
  }
  std::vector<TraceRow> rows;
  bool csv = false;
  std::string line;
  double first_seconds = 0;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (number == 1 && line == kCsvHeader) {
      csv = true;
      continue;
    }
    if (line.empty()) return FaultAt(path, number, "is empty");
    TraceRow row;
    const Fault fault = csv ? ParseCsvRow(line, &row) : ParseJsonRow(line, block, &row);
    if (!fault.empty()) return FaultAt(path, number, fault);
    if (rows.empty()) first_seconds = row.arrival_seconds;
    row.arrival_seconds -= first_seconds;
    if (!rows.empty() && row.arrival_seconds < rows.back().arrival_seconds) {
      return FaultAt(path, number, "has an earlier time than the line before; sort the trace");
    }
    rows.push_back(std::move(row));
  }
  if (file.bad()) {
    return absl::UnavailableError(
        absl::StrCat("the trace ", path, " cannot be read: ", std::strerror(errno)));
  }
  if (rows.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the trace ", path, " has no rows"));
  }
  return rows;
}

}  // namespace quire::load
