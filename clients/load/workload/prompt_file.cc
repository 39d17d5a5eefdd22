// Plain lines, and lines of JSON.
#include "clients/load/workload/prompt_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace quire::load {

absl::StatusOr<std::vector<std::string>> ReadPromptFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat("the prompt file ", path, " cannot be opened: ", std::strerror(errno)));
  }
  std::vector<std::string> prompts;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line.front() == '{') {
      const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      const bool has_prompt =
          json.is_object() && json.contains("prompt") && json.at("prompt").is_string();
      if (!has_prompt) {
        return absl::InvalidArgumentError(absl::StrCat("the prompt file ", path, ", line ", number,
                                                       " is no JSON object with a \"prompt\""));
      }
      line = json.at("prompt").get<std::string>();
    }
    if (line.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the prompt file ", path, ", line ", number, " has an empty prompt"));
    }
    prompts.push_back(line);
  }
  if (prompts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the prompt file ", path, " has no lines"));
  }
  return prompts;
}

}  // namespace quire::load
