// CharKind: the general categories of Unicode 16.0 that tokenizer patterns tell apart, as the
// regular expressions of the `tokenizers` package know them. Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace quire {

enum class CharKind : uint8_t {
  kOther,        // controls, unassigned code points and the rest
  kUpper,        // \p{Lu}, \p{Lt}
  kLower,        // \p{Ll}
  kCaseless,     // \p{Lm}, \p{Lo}
  kMark,         // \p{M}
  kNumber,       // \p{N}
  kPunctuation,  // \p{P}
  kSymbol,       // \p{S}
  kSpace,        // \s
};

// A set of kinds.
using CharKinds = uint16_t;
constexpr CharKinds SetOf(CharKind kind) {
  return static_cast<CharKinds>(1u << static_cast<unsigned>(kind));
}
template <class... More>
constexpr CharKinds SetOf(CharKind kind, More... more) {
  return SetOf(kind) | SetOf(more...);
}

// Two-stage table: a code point's page of 256, then its kind in the page.
struct CharKindTable {
  std::array<uint8_t, 0x1100> page_of;
  std::array<std::array<CharKind, 256>, 224> pages;

  CharKind Of(char32_t c) const { return pages[page_of[c >> 8]][c & 0xFF]; }
};
const CharKindTable& KindsOfChars();

// Every `step`th code point from first to last.
struct KindRange {
  char32_t first, last;
  uint8_t step;
  CharKind kind;
};
extern const KindRange kKindRanges[];
extern const size_t kKindRangesSize;

}  // namespace quire
