// A splitter for any pattern whose meaning is the same in the `tokenizers` package's engine and in
// PCRE2, which runs it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/text/piece_splitter.h"

namespace quire {

// Pieces are the matches of `pattern` and the text between them. INVALID_ARGUMENT for what does not
// compile and for constructs that the two engines read in different ways. \p{..} means Unicode 16.0
// for general categories, the library's own version for scripts.
absl::StatusOr<std::unique_ptr<const PieceSplitter>> MakeRegexSplitter(const std::string& pattern);

}  // namespace quire
