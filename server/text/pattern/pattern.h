// Pattern: something that is found in a text: a literal, a regular expression or a set of
// characters. Immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/text/file/json_node.h"

namespace quire {

// Bytes [begin, end) of a text.
struct Span {
  uint32_t begin, end;
  bool operator==(const Span&) const = default;
};

class Pattern {
 public:
  virtual ~Pattern() = default;
  // Appends the matches in `text` (valid UTF-8): leftmost first, apart from each other, none empty.
  // RESOURCE_EXHAUSTED if a regular expression runs out of the thread's TextBudget (of one for this
  // text if none is open), or out of memory; the status of the thread's StopMark if that is raised.
  virtual absl::Status FindAll(std::string_view text, std::vector<Span>* matches) const = 0;
};

// Matches exactly `text`, which is not empty.
std::unique_ptr<const Pattern> MakeLiteralPattern(std::string text);

// Each code point that belongs to a set is a match of its own.
enum class CharSet : uint8_t {
  kNumber,       // \p{N}
  kSpace,        // white space
  kPunctuation,  // ASCII symbols and punctuation, and \p{P} as the `tokenizers` package knows it
};
std::unique_ptr<const Pattern> MakeCharPattern(CharSet set);

// Runs of word characters, and runs of what is neither a word character nor white space: the words
// of the pre-tokenizer Whitespace.
std::unique_ptr<const Pattern> MakeWordPattern();

// The member `pattern`: {"String": ..} or {"Regex": ..}.
absl::StatusOr<std::unique_ptr<const Pattern>> ReadPattern(const JsonNode& node);

}  // namespace quire
