// The families that have a format, those with the rarer signs first.
#include "server/answer_parts/call_format.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace quire {
namespace {

const std::vector<CallFormat>& Formats() {
  static const std::vector<CallFormat> formats = {
      {.name = "hermes",
       .aliases = "qwen|qwen25|qwen3",
       .signs = {"</tool_call>", "<function-name>"},
       .marks = {"<tool_call>", "</tool_call>"},
       .open = "<tool_call>\n",
       .between = "\n</tool_call>\n<tool_call>\n",
       .close = "\n</tool_call>",
       .arguments = "arguments",
       .make = MakeHermesCalls},
      {.name = "mistral",
       .aliases = "",
       .signs = {"[TOOL_CALLS]"},
       .marks = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"},
       .open = "[TOOL_CALLS][",
       .between = ", ",
       .close = "]",
       .arguments = "arguments",
       .make = MakeMistralCalls},
      {.name = "llama3_json",
       .aliases = "llama|llama3|llama3_1",
       .signs = {"dictionary of argument name and its value"},
       .marks = {"<|python_tag|>"},
       .open = "",
       .between = "; ",
       .close = "",
       .arguments = "parameters",
       .make = MakeLlamaCalls},
  };
  return formats;
}

std::vector<std::string> NamesOf(const CallFormat& format) {
  std::vector<std::string> names = absl::StrSplit(format.aliases, '|', absl::SkipEmpty());
  names.insert(names.begin(), format.name);
  return names;
}

}  // namespace

const CallFormat* FindCallFormat(std::string_view name) {
  for (const CallFormat& format : Formats()) {
    for (const std::string& known : NamesOf(format)) {
      if (known == name) return &format;
    }
  }
  return nullptr;
}

std::string CallFormatNames() {
  std::vector<std::string> all;
  for (const CallFormat& format : Formats()) {
    for (std::string& name : NamesOf(format)) all.push_back(std::move(name));
  }
  return absl::StrJoin(all, ", ");
}

const CallFormat* DetectCallFormat(const std::function<bool(std::string_view)>& mentions) {
  for (const CallFormat& format : Formats()) {
    if (std::ranges::all_of(format.signs, mentions)) return &format;
  }
  return nullptr;
}

}  // namespace quire
