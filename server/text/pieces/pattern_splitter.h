// A splitter at the matches of a pattern, with the behaviours that tokenizer.json names.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/text/file/json_node.h"
#include "server/text/pattern/pattern.h"
#include "server/text/pieces/piece_splitter.h"

namespace quire {

// The place of a match among the pieces.
enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,            // a piece of its own
  kMergedWithPrevious,  // joined to the text before it; after another match, a piece of its own
  kMergedWithNext,      // likewise with the text after it
  kContiguous,          // matches in a row are one piece
};

// With `invert`, the text between the matches counts as matches, and the matches do not.
std::unique_ptr<const PieceSplitter> MakePatternSplitter(std::unique_ptr<const Pattern> pattern,
                                                         SplitBehavior behavior,
                                                         bool invert = false);

// The member `behavior` of a pre-tokenizer.
absl::StatusOr<SplitBehavior> ReadSplitBehavior(const JsonNode& node);

// A splitter for pieces whose bytes are written in the byte alphabet: `splitter` sees that writing.
std::unique_ptr<const PieceSplitter> MakeAlphabetSplitter(
    std::unique_ptr<const PieceSplitter> splitter);

}  // namespace quire
