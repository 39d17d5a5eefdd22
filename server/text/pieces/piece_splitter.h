// PieceSplitter: cuts pieces of a text into smaller ones; a model joins tokens only within a piece.
// tokenizer.json calls it a pre-tokenizer. Immutable; any thread.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/text/pattern/pattern.h"

namespace quire {

class PieceSplitter {
 public:
  virtual ~PieceSplitter() = default;
  // Appends the parts of each of `pieces` of `text` (valid UTF-8 each) to `out`: in order, apart
  // from each other, none empty. Text that no part covers is left out of the ids.
  // Errors: Pattern::FindAll's.
  virtual absl::Status Split(std::string_view text, std::span<const Span> pieces,
                             std::vector<Span>* out) const = 0;
};

}  // namespace quire
