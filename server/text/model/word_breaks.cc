// A merge takes one symbol that ends with a code point and one that begins with another; only such
// pairs are joined.
#include "server/text/model/word_breaks.h"

#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

constexpr char32_t kSpace = 0x2581;

char32_t FirstOf(std::string_view token) { return DecodeUtf8(token.data()).value; }
char32_t LastOf(std::string_view token) {
  return DecodeUtf8(token.data() + CodePointBegin(token, token.size() - 1)).value;
}

uint64_t HashOf(char32_t left, char32_t right) {
  const uint64_t pair = uint64_t{left} << 32 | right;
  return (pair ^ pair >> 29) * 0x9E3779B97F4A7C15u;
}

}  // namespace

WordBreaks::WordBreaks(const std::vector<std::string_view>& tokens,
                       const std::vector<MergeTable::Merge>& merges, const CharIds& chars,
                       bool leaves_out)
    : chars_(chars), leaves_out_(leaves_out), joined_(merges.size()), breaks_(kPlaces * kPlaces) {
  for (const MergeTable::Merge& merge : merges) {
    joined_.Add(HashOf(LastOf(tokens[merge.left]), FirstOf(tokens[merge.right])));
  }
  const auto char_at = [](size_t place) {
    return place == kSpacePlace ? kSpace : static_cast<char32_t>(place);
  };
  for (size_t pair = 0; pair < breaks_.size(); ++pair) {
    breaks_[pair] = Breaks(char_at(pair / kPlaces), char_at(pair % kPlaces));
  }
}

// Two code points without a token are never apart: they may be one unknown token.
bool WordBreaks::Breaks(char32_t left, char32_t right) const {
  if (joined_.MayHave(HashOf(left, right))) return false;
  const bool has_left = chars_.Find(left) >= 0, has_right = chars_.Find(right) >= 0;
  return leaves_out_ ? has_left && has_right : has_left || has_right;
}

size_t WordBreaks::WordEnd(std::string_view text, size_t at) const {
  constexpr size_t kOther = SIZE_MAX;
  char32_t left = 0;
  size_t left_place = kOther;
  for (const size_t begin = at; at < text.size();) {
    const CodePoint right = DecodeUtf8(text.data() + at);
    size_t right_place = kOther;
    if (right.value < kSpacePlace) {
      right_place = right.value;
    } else if (right.value == kSpace) {
      right_place = kSpacePlace;
    }
    if (at > begin) {
      const bool in_table = left_place != kOther && right_place != kOther;
      const bool breaks =
          in_table ? breaks_[left_place * kPlaces + right_place] != 0 : Breaks(left, right.value);
      if (breaks) return at;
    }
    left = right.value;
    left_place = right_place;
    at += static_cast<size_t>(right.size);
  }
  return at;
}

}  // namespace quire
