// A splitter for any pattern that means the same in the engine of the `tokenizers` package and in
// PCRE2, which executes it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/text/piece_splitter.h"

namespace quire {

// Pieces are the matches of `pattern` and the text between them. INVALID_ARGUMENT for patterns that
// do not compile and for constructs that the two engines read differently. \p{..} is Unicode 16.0
// for general categories, and the library's version for scripts.
absl::StatusOr<std::unique_ptr<const PieceSplitter>> MakeRegexSplitter(const std::string& pattern);

}  // namespace quire
