// Searches the ranges that make_char_sets.py probed.
#include "server/text/unicode/char_sets.h"

#include <algorithm>
#include <array>
#include <span>

#include "server/text/unicode/char_set_tables.h"

namespace quire {
namespace {

template <class Range>
const Range* Find(std::span<const Range> ranges, char32_t c) {
  const auto after =
      std::ranges::upper_bound(ranges, c, {}, [](const Range& range) { return range.first; });
  if (after == ranges.begin() || (after - 1)->last < c) return nullptr;
  return &*(after - 1);
}

// Most text is ASCII, so its answers stand in an array.
class RangeSet {
 public:
  RangeSet(const CodeRange* ranges, size_t size) : ranges_(ranges, size) {
    for (char32_t c = 0; c < ascii_.size(); ++c) ascii_[c] = Find(ranges_, c) != nullptr;
  }
  bool Has(char32_t c) const { return c < 0x80 ? ascii_[c] : Find(ranges_, c) != nullptr; }

 private:
  const std::span<const CodeRange> ranges_;
  std::array<bool, 0x80> ascii_ = {};
};

}  // namespace

bool IsPunctuation(char32_t c) {
  static const RangeSet set(kPunctuationRanges, kPunctuationRangesSize);
  return set.Has(c);
}

bool IsWordChar(char32_t c) {
  static const RangeSet set(kWordRanges, kWordRangesSize);
  return set.Has(c);
}

bool IsAccent(char32_t c) {
  static const RangeSet set(kAccentRanges, kAccentRangesSize);
  return set.Has(c);
}

void AppendLower(char32_t c, std::u32string* out) {
  if (c == 0x130) {  // the capital I with a dot keeps its dot
    out->append(U"i\u0307");
    return;
  }
  const LowerRange* const range =
      Find(std::span<const LowerRange>(kLowerRanges, kLowerRangesSize), c);
  const bool changes = range != nullptr && (c - range->first) % range->step == 0;
  out->push_back(changes ? static_cast<char32_t>(static_cast<int32_t>(c) + range->delta) : c);
}

}  // namespace quire
