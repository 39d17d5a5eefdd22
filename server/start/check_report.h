// CheckReport: everything that --check found out, as data, and the page that shows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/start/start_error.h"

namespace quire {

// The parts of a start that can refuse it, in the order in which it comes to them.
enum class StartStage : uint8_t {
  kCertificates,
  kPlan,
  kText,
  kFiles,
  kSessions,
  kKeys,
  kTensors,
};

struct CheckFact {
  std::string name;
  std::string value;  // one line or several
};

struct CheckSection {
  std::string title;
  std::vector<CheckFact> facts;

  void Add(std::string name, std::string value);
};

struct CheckProblem {
  StartStage stage = StartStage::kPlan;
  ExitCode code = ExitCode::kOk;
  std::string text;  // one line
};

struct CheckReport {
  std::vector<CheckSection> sections;
  std::vector<std::string> warnings;   // a sentence each: the server starts, and lacks something
  std::vector<CheckProblem> problems;  // each ends a start

  // Adds a problem for each line of an error; OK adds nothing.
  void Refuse(StartStage stage, ExitCode code, const absl::Status& status);
  // The code with which a start ends: that of the first stage with a problem, or kOk.
  ExitCode code() const;
};

// For people: a block for each section, the warnings, and the verdict as the last block: "would
// start", or "would not start" with the exit code and each reason, those of the first stage first.
std::string CheckPage(const CheckReport& report);
// The same for programs, as JSON: "starts", "exit_code", "sections" (values of facts by the names
// of section and fact, as on the page), "notes", and "problems" with "exit_code" and "reason".
std::string CheckJson(const CheckReport& report);

// "1,234,567".
std::string CountText(int64_t count);
// "1.50 GiB", "17.2 MiB", "812 bytes".
std::string BytesText(int64_t bytes);
// The text in double quotes on one line, at most `most` bytes of it: control characters and cut
// characters are escaped.
std::string QuotedText(const std::string& text, size_t most);

}  // namespace quire
