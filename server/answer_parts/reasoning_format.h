// ReasoningFormat: how a family of models marks the reasoning before its answers. One row of the
// table in reasoning_format.cc each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace quire {

struct ReasoningFormat {
  const char* name;     // as --reasoning-parser takes it
  const char* aliases;  // "a|b"
  std::string_view begin, end;
};

// How the output starts, as the prompt left it.
enum class ReasoningStart : uint8_t {
  kMayBegin,  // it reasons if it begins with the marker
  kBegun,     // the prompt ends with the begin marker
  kOver,      // the prompt ends with the end marker: the model was told not to reason
};

// Null for a name that no row has.
const ReasoningFormat* FindReasoningFormat(std::string_view name);
// "a, b or c": every name and alias.
std::string ReasoningFormatNames();
// The format whose end marker a chat template has; null if there is none. `mentions` tells whether
// the model's templates have a text.
const ReasoningFormat* DetectReasoningFormat(const std::function<bool(std::string_view)>& mentions);

ReasoningStart StartAfter(const ReasoningFormat& format, std::string_view prompt);

}  // namespace quire
