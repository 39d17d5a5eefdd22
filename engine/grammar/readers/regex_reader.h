// ReadRegex: makes a regular expression into an expression of a Grammar. The syntax is that on
// which ECMAScript and Python agree, as far as it is regular.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/grammar/rules/grammar.h"

namespace quire {

struct RegexUse {
  std::string what;    // of messages
  int max_depth = 64;  // of groups
  // The text may go on before and after a match, except where ^ or $ stand; otherwise the whole
  // text matches, and they say nothing.
  bool search = false;
  bool anchors = true;       // ^ and $ may stand at the ends
  bool dot_all = false;      // the dot is any code point
  bool ignore_case = false;  // letters of ASCII stand for both cases, others are refused
  // How a text writes one of some code points; null: as they are.
  std::function<ExprId(const CodeSet&)> write;
};

// INVALID_ARGUMENT names what is not supported, with its byte offset.
absl::StatusOr<ExprId> ReadRegex(std::string_view text, const RegexUse& use, Grammar* grammar);

}  // namespace quire
