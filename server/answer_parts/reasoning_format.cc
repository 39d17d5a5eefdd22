// The families that mark their reasoning.
#include "server/answer_parts/reasoning_format.h"

#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace quire {
namespace {

constexpr ReasoningFormat kFormats[] = {
    {"deepseek_r1", "qwen3", "<think>", "</think>"},
    {"mistral", "magistral", "[THINK]", "[/THINK]"},
    {"seed_oss", "seed", "<seed:think>", "</seed:think>"},
};

std::vector<std::string> NamesOf(const ReasoningFormat& format) {
  std::vector<std::string> names = absl::StrSplit(format.aliases, '|');
  names.insert(names.begin(), format.name);
  return names;
}

}  // namespace

const ReasoningFormat* FindReasoningFormat(std::string_view name) {
  for (const ReasoningFormat& format : kFormats) {
    for (const std::string& known : NamesOf(format)) {
      if (known == name) return &format;
    }
  }
  return nullptr;
}

std::string ReasoningFormatNames() {
  std::vector<std::string> all;
  for (const ReasoningFormat& format : kFormats) {
    for (std::string& name : NamesOf(format)) all.push_back(std::move(name));
  }
  return absl::StrJoin(all, ", ");
}

const ReasoningFormat* DetectReasoningFormat(
    const std::function<bool(std::string_view)>& mentions) {
  for (const ReasoningFormat& format : kFormats) {
    if (mentions(format.end)) return &format;
  }
  return nullptr;
}

ReasoningStart StartAfter(const ReasoningFormat& format, std::string_view prompt) {
  const size_t last = prompt.find_last_not_of(" \t\r\n");
  prompt = prompt.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (prompt.ends_with(format.begin)) return ReasoningStart::kBegun;
  return prompt.ends_with(format.end) ? ReasoningStart::kOver : ReasoningStart::kMayBegin;
}

}  // namespace quire
