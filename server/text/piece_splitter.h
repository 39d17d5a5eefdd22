// PieceSplitter: cuts text into the pieces that byte pairs are merged within (what tokenizer.json
// calls a pre-tokenizer). The patterns of GPT-2, Llama 3 and Qwen are scanned by code written for
// them; any other pattern whose meaning is the same in both engines runs in PCRE2. Immutable; any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire {

class PieceSplitter {
 public:
  virtual ~PieceSplitter() = default;
  // Appends the end of each piece of `text` (valid UTF-8) to `ends`, ascending; pieces are not
  // empty and the last one ends with the text. RESOURCE_EXHAUSTED when a pattern hits its match
  // limit.
  virtual absl::Status Split(std::string_view text, std::vector<uint32_t>* ends) const = 0;
};

extern const char kGpt2Pattern[];
extern const char kLlama3Pattern[];
extern const char kQwen2Pattern[];

// The scanner for a pattern written exactly as one of the three above, else nullptr.
std::unique_ptr<const PieceSplitter> MakeScanner(std::string_view pattern);

// Matches of `pattern` and the text between them, by PCRE2. INVALID_ARGUMENT for what does not
// compile and for constructs that the `tokenizers` package's engine reads in another way. \p{..}
// means Unicode 16.0 for general categories, the library's own version for scripts.
absl::StatusOr<std::unique_ptr<const PieceSplitter>> MakeRegexSplitter(const std::string& pattern);

// Numeric code points apart from the rest: each alone, or in runs.
std::unique_ptr<const PieceSplitter> MakeDigitSplitter(bool individual);

}  // namespace quire
