// Lists of places, linked from the latest to the first.
#include "engine/schedule/guess/suffix_index.h"

#include <algorithm>
#include <bit>

#include "kernels/check.h"

namespace quire {

SuffixIndex::SuffixIndex(int32_t max_tokens)
    : head_bits_(std::bit_width(static_cast<uint32_t>(std::max(max_tokens, 16)))),
      heads_(size_t{1} << head_bits_),
      before_(static_cast<size_t>(max_tokens) + 1) {}

// Fibonacci hashing of both tokens as one number of 64 bits.
size_t SuffixIndex::HeadOf(int32_t before_last, int32_t last) const {
  const uint64_t both = uint64_t{static_cast<uint32_t>(before_last)} << 32 | uint32_t(last);
  return static_cast<size_t>(both * 0x9E3779B97F4A7C15u >> (64 - head_bits_));
}

void SuffixIndex::Enter(const KnownText& text, int32_t end) {
  CHECK(end <= text.size() && end < static_cast<int32_t>(before_.size()));
  while (entered_ < end) {
    const int32_t place = ++entered_;
    int32_t& head = heads_[HeadOf(text[place - 2], text[place - 1])];
    before_[place] = head;
    head = place;
  }
}

int32_t SuffixIndex::Find(const KnownText& text) const {
  const int32_t end = text.size();
  if (end < kLeast) return kNone;
  int32_t found = kNone;
  int32_t longest = kLeast - 1;
  int32_t candidates = 0, visits = 0;
  for (int32_t place = heads_[HeadOf(text[end - 2], text[end - 1])]; place > 0;
       place = before_[place]) {
    if (++visits > kMostVisits || candidates == kCandidates) break;
    if (place == end) continue;
    int32_t equal = 0;
    while (equal < std::min(place, kLongest) && text[place - 1 - equal] == text[end - 1 - equal]) {
      ++equal;
    }
    candidates += equal >= kLeast;
    if (equal <= longest) continue;
    longest = equal;
    found = place;
  }
  return found;
}

}  // namespace quire
