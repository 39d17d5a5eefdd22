// Code point ranges behind server/text/unicode/unicode.h, written by make_unicode_tables.py.
#pragma once

#include <cstddef>

namespace quire {

struct CodeRange {
  char32_t first, last;
};
struct CategoryRange {
  char category[3];  // "Lo", "Nd", ...
  char32_t first, last;
};

extern const CodeRange kLetterRanges[];  // \p{L} of Unicode 16.0
extern const size_t kLetterRangesSize;
extern const CodeRange kNumberRanges[];  // \p{N} of Unicode 16.0
extern const size_t kNumberRangesSize;
extern const CodeRange kNfcInertRanges[];
extern const size_t kNfcInertRangesSize;
extern const CategoryRange kSinceUnicode14[];
extern const size_t kSinceUnicode14Size;

}  // namespace quire
