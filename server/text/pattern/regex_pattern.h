// A regular expression that means the same in the engine of the `tokenizers` package and in PCRE2,
// which executes it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/text/pattern/pattern.h"

namespace quire {

// INVALID_ARGUMENT for patterns that do not compile, that match the empty text, and for constructs
// that the two engines read differently. \p{..} is Unicode 16.0
// for general categories, and the library's version for scripts.
absl::StatusOr<std::unique_ptr<const Pattern>> MakeRegexPattern(const std::string& pattern);

}  // namespace quire
