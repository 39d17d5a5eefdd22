// ReadLark: makes a grammar in the notation of Lark into rules of a Grammar.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/grammar/rules/grammar.h"
#include "engine/grammar/rules/guide_limits.h"

namespace quire {

// The rule "start", with ignored texts before, between and after the tokens. A text is one of the
// grammar if it can be derived, however its tokens are told apart: terminals are not taken as long
// as possible. INVALID_ARGUMENT names what is wrong, by line and column.
absl::StatusOr<RuleId> ReadLark(std::string_view text, const GuideLimits& limits, Grammar* grammar);

}  // namespace quire
