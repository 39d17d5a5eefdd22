// PieceSplitter: cuts text into pieces; byte pairs are merged only within a piece. tokenizer.json
// calls it a pre-tokenizer. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace quire {

class PieceSplitter {
 public:
  virtual ~PieceSplitter() = default;
  // Appends the end of each piece of `text` (valid UTF-8) to `ends`, ascending; pieces are not
  // empty and the last one ends with the text. RESOURCE_EXHAUSTED if a pattern reaches its match
  // limit.
  virtual absl::Status Split(std::string_view text, std::vector<uint32_t>* ends) const = 0;
};

}  // namespace quire
