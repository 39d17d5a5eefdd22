// Validates and repairs UTF-8; builds the class table from the committed ranges.
#include "server/text/unicode/unicode.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "kernels/check.h"
#include "server/text/unicode/unicode_tables.h"

namespace quire {
namespace {

constexpr CodeRange kSpaceRanges[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};

CharClassTable BuildCharClasses() {
  std::string classes(0x110000, static_cast<char>(CharClass::kOther));
  const auto fill = [&classes](const CodeRange* ranges, size_t count, CharClass value) {
    for (size_t i = 0; i < count; ++i) {
      std::memset(&classes[ranges[i].first], static_cast<int>(value),
                  ranges[i].last - ranges[i].first + 1);
    }
  };
  fill(kLetterRanges, kLetterRangesSize, CharClass::kLetter);
  fill(kNumberRanges, kNumberRangesSize, CharClass::kNumber);
  fill(kSpaceRanges, std::size(kSpaceRanges), CharClass::kSpace);

  CharClassTable table;
  std::map<std::string_view, size_t> seen;
  for (size_t page = 0; page < table.page_of.size(); ++page) {
    const std::string_view content(classes.data() + page * 256, 256);
    const auto [at, inserted] = seen.emplace(content, seen.size());
    CHECK_LT(at->second, table.pages.size());
    table.page_of[page] = static_cast<uint8_t>(at->second);
    if (inserted) std::memcpy(table.pages[at->second].data(), content.data(), 256);
  }
  return table;
}

// The valid bytes after a lead byte: the size of the code point and the range of its second byte,
// which excludes overlong forms, surrogates and values above 10FFFF. size 0: not a lead byte.
struct LeadByte {
  int size;
  uint8_t second_min, second_max;
};
LeadByte ReadLead(uint8_t lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

const CharClassTable& CharClasses() {
  static const CharClassTable table = BuildCharClasses();
  return table;
}

void AppendUtf8(char32_t c, std::string* out) {
  const auto tail = [](char32_t bits) { return static_cast<char>(0x80 | (bits & 0x3F)); };
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->append({static_cast<char>(0xC0 | c >> 6), tail(c)});
  } else if (c < 0x10000) {
    out->append({static_cast<char>(0xE0 | c >> 12), tail(c >> 6), tail(c)});
  } else {
    out->append({static_cast<char>(0xF0 | c >> 18), tail(c >> 12), tail(c >> 6), tail(c)});
  }
}

size_t FindInvalidUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (at + 8 <= text.size()) {
      uint64_t word;
      std::memcpy(&word, text.data() + at, 8);
      if ((word & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const LeadByte lead = ReadLead(static_cast<uint8_t>(text[at]));
    if (lead.size == 0 || at + lead.size > text.size()) return at;
    if (lead.size > 1) {
      const uint8_t second = static_cast<uint8_t>(text[at + 1]);
      if (second < lead.second_min || second > lead.second_max) return at;
      for (int i = 2; i < lead.size; ++i) {
        if (!IsContinuation(text[at + i])) return at;
      }
    }
    at += lead.size;
  }
  return std::string_view::npos;
}

size_t CodePointBegin(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && IsContinuation(text[at])) --at;
  return at;
}

size_t CodePointEnd(std::string_view text, size_t at) {
  ++at;
  while (at < text.size() && IsContinuation(text[at])) ++at;
  return at;
}

void Utf8Repair::Push(std::string_view bytes, std::string* out) {
  for (size_t at = 0; at < bytes.size();) {
    const uint8_t byte = static_cast<uint8_t>(bytes[at]);
    if (size_ == 0) {
      ++at;
      needed_ = ReadLead(byte).size;
      if (needed_ == 1) {
        out->push_back(static_cast<char>(byte));
      } else if (needed_ == 0) {
        out->append(kReplacementCharacter);
      } else {
        pending_[size_++] = static_cast<char>(byte);
      }
      continue;
    }
    const LeadByte lead = ReadLead(static_cast<uint8_t>(pending_[0]));
    const bool fits = size_ == 1 ? byte >= lead.second_min && byte <= lead.second_max
                                 : IsContinuation(static_cast<char>(byte));
    if (!fits) {  // the byte is read again as the start of the next code point
      Finish(out);
      continue;
    }
    ++at;
    pending_[size_++] = static_cast<char>(byte);
    if (size_ == needed_) {
      out->append(pending_, size_);
      size_ = 0;
    }
  }
}

void Utf8Repair::Finish(std::string* out) {
  const bool each = substitute_ == Substitute::kEachByte;
  for (int i = each ? size_ : std::min(size_, 1); i > 0; --i) out->append(kReplacementCharacter);
  size_ = 0;
}

}  // namespace quire
