// Ranges of code points, cut where the form of their UTF-8 changes.
#include "engine/grammar/rules/code_set.h"

#include <algorithm>

namespace quire {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr CodeRange kSurrogates = {0xD800, 0xDFFF};

std::array<uint8_t, 4> Encode(char32_t c, int size) {
  std::array<uint8_t, 4> bytes = {};
  for (int i = size - 1; i > 0; --i, c >>= 6) bytes[i] = static_cast<uint8_t>(0x80 | (c & 0x3F));
  constexpr uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  bytes[0] = static_cast<uint8_t>(kLead[size] | c);
  return bytes;
}

// Cuts [first, last] until each part varies in whole trailing bytes.
void Split(char32_t first, char32_t last, std::vector<ByteSequence>* out) {
  const auto cut = [&](char32_t end) {
    Split(first, end, out);
    Split(end + 1, last, out);
  };
  for (const char32_t end : {char32_t{0x7F}, char32_t{0x7FF}, char32_t{0xFFFF}}) {
    if (first <= end && last > end) return cut(end);
  }
  const int size = last < 0x80 ? 1 : last < 0x800 ? 2 : last < 0x10000 ? 3 : 4;
  for (int i = 1; i < size; ++i) {
    const char32_t low = (char32_t{1} << (6 * i)) - 1;
    if ((first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) return cut(first | low);
    if ((last & low) != low) return cut((last & ~low) - 1);
  }
  ByteSequence sequence{.size = size};
  const auto low = Encode(first, size), high = Encode(last, size);
  for (int i = 0; i < size; ++i) sequence.bytes[i] = {low[i], high[i]};
  out->push_back(sequence);
}

}  // namespace

CodeSet::CodeSet(std::initializer_list<CodeRange> ranges) {
  for (const CodeRange range : ranges) Add(range);
}

void CodeSet::Add(CodeRange range) {
  if (range.first > range.last) return;
  // The ranges that touch the new one become one with it.
  auto begin =
      std::lower_bound(ranges_.begin(), ranges_.end(), range.first,
                       [](const CodeRange& each, char32_t c) { return each.last + 1 < c; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= range.last + 1; ++end) {
    range = {std::min(range.first, end->first), std::max(range.last, end->last)};
  }
  ranges_.insert(ranges_.erase(begin, end), range);
}

void CodeSet::Add(const CodeSet& other) {
  for (const CodeRange range : other.ranges_) Add(range);
}

CodeSet CodeSet::Complement() const {
  CodeSet all = *this, out;
  all.Add(kSurrogates);
  char32_t next = 0;
  for (const CodeRange range : all.ranges_) {
    if (range.first > next) out.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) out.ranges_.push_back({next, kLast});
  return out;
}

CodeSet CodeSet::Without(const CodeSet& other) const {
  CodeSet outside = Complement();
  outside.Add(other);
  return outside.Complement();
}

bool CodeSet::Contains(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [c](const CodeRange& range) { return range.first <= c && c <= range.last; });
}

std::vector<ByteSequence> CodeSet::Sequences() const {
  std::vector<ByteSequence> out;
  for (const CodeRange range : ranges_) {
    if (range.first < kSurrogates.first) {
      Split(range.first, std::min<char32_t>(range.last, kSurrogates.first - 1), &out);
    }
    if (range.last > kSurrogates.last) {
      Split(std::max<char32_t>(range.first, kSurrogates.last + 1), std::min(range.last, kLast),
            &out);
    }
  }
  return out;
}

}  // namespace quire
