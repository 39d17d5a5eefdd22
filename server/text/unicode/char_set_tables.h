// Code point ranges behind server/text/unicode/char_sets.h, written by make_char_sets.py.
#pragma once

#include <cstddef>
#include <cstdint>

#include "server/text/unicode/unicode_tables.h"

namespace quire {

// Every `step`th code point from first to last has its lower case `delta` away.
struct LowerRange {
  char32_t first, last;
  uint8_t step;
  int32_t delta;
};

extern const CodeRange kPunctuationRanges[];
extern const size_t kPunctuationRangesSize;
extern const CodeRange kWordRanges[];
extern const size_t kWordRangesSize;
extern const CodeRange kAccentRanges[];
extern const size_t kAccentRangesSize;
extern const CodeRange kCompatInertRanges[];
extern const size_t kCompatInertRangesSize;
extern const LowerRange kLowerRanges[];
extern const size_t kLowerRangesSize;

}  // namespace quire
