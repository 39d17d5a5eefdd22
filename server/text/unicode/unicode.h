// UTF-8 and the character classes of tokenizer patterns: \p{L}, \p{N} and \s of Unicode 16.0, as in
// the regular expressions of the `tokenizers` package. Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };

// Two-stage table: a code point's page of 256, then its class in the page.
struct CharClassTable {
  std::array<uint8_t, 0x1100> page_of;
  std::array<std::array<CharClass, 256>, 192> pages;
};
const CharClassTable& CharClasses();

inline CharClass ClassOf(const CharClassTable& table, char32_t c) {
  return table.pages[table.page_of[c >> 8]][c & 0xFF];
}

// One code point of valid UTF-8.
struct CodePoint {
  char32_t value;
  int size;  // bytes
};
inline CodePoint DecodeUtf8(const char* p) {
  const auto at = [p](int i) { return static_cast<uint8_t>(p[i]); };
  if (at(0) < 0x80) return {at(0), 1};
  if (at(0) < 0xE0) return {(at(0) & 0x1Fu) << 6 | (at(1) & 0x3Fu), 2};
  if (at(0) < 0xF0) {
    return {(at(0) & 0x0Fu) << 12 | (at(1) & 0x3Fu) << 6 | (at(2) & 0x3Fu), 3};
  }
  return {(at(0) & 0x07u) << 18 | (at(1) & 0x3Fu) << 12 | (at(2) & 0x3Fu) << 6 | (at(3) & 0x3Fu),
          4};
}
void AppendUtf8(char32_t c, std::string* out);

// Offset of the first byte that is not part of valid UTF-8 (overlong forms, surrogates and values
// above 10FFFF are invalid); npos if all bytes are valid.
size_t FindInvalidUtf8(std::string_view text);

// The first byte, and one past the last byte, of the code point that contains byte `at` of valid
// `text`.
size_t CodePointBegin(std::string_view text, size_t at);
size_t CodePointEnd(std::string_view text, size_t at);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Repairs a stream of bytes to valid UTF-8. Use one per stream.
class Utf8Repair {
 public:
  // One U+FFFD stands for each maximal invalid part (Unicode §3.9, substitution of maximal
  // subparts), or each of its bytes.
  enum class Substitute : uint8_t { kMaximalPart, kEachByte };
  explicit Utf8Repair(Substitute substitute = Substitute::kMaximalPart) : substitute_(substitute) {}

  // Appends the code points that `bytes` completes; an unfinished one waits for the next call.
  void Push(std::string_view bytes, std::string* out);
  // Ends the stream, or a part of it: an unfinished code point is invalid.
  void Finish(std::string* out);
  // Whether Finish would append anything.
  bool pending() const { return size_ > 0; }

 private:
  Substitute substitute_;
  char pending_[4] = {};
  int size_ = 0;    // bytes pending
  int needed_ = 0;  // bytes of the code point being read
};

}  // namespace quire
