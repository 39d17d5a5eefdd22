// The lexer of chat templates: converts source text to tokens, with trim_blocks and lstrip_blocks
// on, as in transformers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace quire::jinja {

struct Token {
  enum class Kind : uint8_t {
    kText,         // printed unchanged
    kOutputBegin,  // {{
    kOutputEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kString,  // its value, escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int line = 1;
  int column = 1;  // in bytes
};

// INVALID_ARGUMENT with line and column. The last token is kEnd.
absl::StatusOr<std::vector<Token>> Tokenize(const std::string& source);

}  // namespace quire::jinja
