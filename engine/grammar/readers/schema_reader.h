// ReadSchema: makes a JSON Schema into rules of a Grammar, whose texts are documents that it
// accepts.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/grammar/rules/grammar.h"
#include "engine/grammar/rules/guide_limits.h"

namespace quire {

// The rule of the whole document. INVALID_ARGUMENT "schema: #/POINTER: ..." names the first keyword
// that is not supported, or what is wrong with one.
absl::StatusOr<RuleId> ReadSchema(std::string_view text, WorkMeter* meter, Grammar* grammar);

}  // namespace quire
