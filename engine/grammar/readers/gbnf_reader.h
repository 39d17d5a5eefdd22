// ReadGbnf: makes a grammar in GBNF, the notation of llama.cpp, into rules of a Grammar.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/grammar/rules/grammar.h"
#include "engine/grammar/rules/guide_limits.h"

namespace quire {

// The rule "root". INVALID_ARGUMENT has the byte offset of what is wrong, or the name of a rule
// that is missing or defined twice.
absl::StatusOr<RuleId> ReadGbnf(std::string_view text, const GuideLimits& limits, Grammar* grammar);

}  // namespace quire
