// ParseLark: makes a grammar in the notation of Lark into a tree, as it is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/grammar/rules/guide_limits.h"

namespace quire {

struct LarkExpr {
  enum class Kind : uint8_t {
    kLiteral,   // the code points of `chars`, one after the other
    kRegex,     // a text that the expression `text` matches
    kRange,     // one code point from chars[0] to chars[1]
    kName,      // a text of the rule or terminal `text`
    kSequence,  // the parts, one after the other
    kChoice,    // one of the parts
    kRepeat,    // parts[0], min to max times
  };
  Kind kind = Kind::kSequence;
  size_t at = 0;  // where it is written, in bytes
  std::string text;
  std::u32string chars;
  bool ignore_case = false, dot_all = false;  // the flags i, s
  uint32_t min = 0, max = 0;                  // max may be Grammar::kUnbounded
  std::vector<LarkExpr> parts;
};

// Terminals are the names in capital letters.
bool IsLarkTerminal(std::string_view name);

struct LarkDefinition {
  std::string name;
  size_t at;
  LarkExpr body;
};

struct LarkImport {
  std::string name, alias;  // of the module "common"
  size_t at;
};

struct LarkText {
  std::vector<LarkDefinition> definitions;
  std::vector<LarkExpr> ignored;
  std::vector<LarkImport> imports;
};

// INVALID_ARGUMENT names what is malformed or not supported, by line and column.
absl::StatusOr<LarkText> ParseLark(std::string_view text, const GuideLimits& limits);

}  // namespace quire
