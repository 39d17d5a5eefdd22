// The page: names in one column, values in the next.
#include "server/start/check_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

namespace quire {
namespace {

constexpr size_t kNameWidth = 20;

std::string FactText(const CheckFact& fact) {
  std::string text;
  std::string name = fact.name;
  std::istringstream lines(fact.value);
  for (std::string line; std::getline(lines, line);) {
    const size_t gap = name.size() < kNameWidth ? kNameWidth - name.size() : 1;
    absl::StrAppend(&text, "  ", name, std::string(gap, ' '), line, "\n");
    name.clear();
  }
  return text;
}

// Names of tensors and of other parts are a stranger's: without characters that steer a terminal.
std::string WithoutControls(const std::string& page) {
  std::string text;
  for (const char c : page) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = (byte < 0x20 && c != '\n') || byte == 0x7f;
    if (control) {
      absl::StrAppend(&text, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      text += c;
    }
  }
  return text;
}

std::vector<CheckProblem> InOrder(std::vector<CheckProblem> problems) {
  std::ranges::stable_sort(problems, {}, &CheckProblem::stage);
  return problems;
}

}  // namespace

void CheckSection::Add(std::string name, std::string value) {
  facts.push_back({std::move(name), std::move(value)});
}

void CheckReport::Refuse(StartStage stage, ExitCode code, const absl::Status& status) {
  if (status.ok()) return;
  for (const auto& line : absl::StrSplit(std::string(status.message()), '\n')) {
    problems.push_back({stage, code, std::string(line)});
  }
}

ExitCode CheckReport::code() const {
  const auto first = std::ranges::min_element(problems, {}, &CheckProblem::stage);
  return first == problems.end() ? ExitCode::kOk : first->code;
}

std::string CheckPage(const CheckReport& report) {
  std::string page;
  for (const CheckSection& section : report.sections) {
    absl::StrAppend(&page, section.title, "\n");
    for (const CheckFact& fact : section.facts) page += FactText(fact);
    page += "\n";
  }
  for (const std::string& warning : report.warnings)
    absl::StrAppend(&page, "note: ", warning, "\n");
  if (!report.warnings.empty()) page += "\n";
  if (report.problems.empty()) return WithoutControls(page + "would start\n");
  absl::StrAppend(&page, "would not start (exit code ", static_cast<int>(report.code()), "):\n");
  for (const CheckProblem& problem : InOrder(report.problems)) {
    absl::StrAppend(&page, "  ", problem.text, "\n");
  }
  return WithoutControls(page);
}

std::string CheckJson(const CheckReport& report) {
  using Json = nlohmann::ordered_json;
  Json sections = Json::object(), problems = Json::array();
  for (const CheckSection& section : report.sections) {
    Json& facts = sections[section.title] = Json::object();
    for (const CheckFact& fact : section.facts) facts[fact.name] = fact.value;
  }
  for (const CheckProblem& problem : InOrder(report.problems)) {
    problems.push_back({{"exit_code", static_cast<int>(problem.code)}, {"reason", problem.text}});
  }
  const Json page = {{"starts", report.problems.empty()},
                     {"exit_code", static_cast<int>(report.code())},
                     {"sections", sections},
                     {"notes", report.warnings},
                     {"problems", problems}};
  return page.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string CountText(int64_t count) {
  std::string text = std::to_string(count);
  const auto digits = static_cast<std::ptrdiff_t>(text.size());
  for (std::ptrdiff_t at = digits - 3; at > (count < 0 ? 1 : 0); at -= 3) {
    text.insert(static_cast<size_t>(at), 1, ',');
  }
  return text;
}

std::string BytesText(int64_t bytes) {
  struct Unit {
    const char* format;
    double size;
  };
  static constexpr std::array kUnits = {Unit{"%.2f GiB", 0x1p30}, Unit{"%.1f MiB", 0x1p20},
                                        Unit{"%.1f KiB", 0x1p10}};
  for (const Unit& unit : kUnits) {
    if (static_cast<double>(bytes) < unit.size) continue;
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), unit.format, static_cast<double>(bytes) / unit.size);
    return text.data();
  }
  return absl::StrCat(bytes, " bytes");
}

std::string QuotedText(const std::string& text, size_t most) {
  const bool cut = text.size() > most;
  // JSON's escapes; a character that the cut splits becomes U+FFFD.
  const std::string quoted = nlohmann::json(cut ? text.substr(0, most) : text)
                                 .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return cut ? quoted + "..." : quoted;
}

}  // namespace quire
