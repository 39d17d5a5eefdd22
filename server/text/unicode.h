// UTF-8 and the character classes of tokenizer patterns (\p{L}, \p{N}, \s of Unicode 16.0, the
// version that the `tokenizers` package's regular expressions carry). Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };

// Two-stage table: page of 256 code points, then the class in it.
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
// over 10FFFF are not valid), npos when all is.
size_t FindInvalidUtf8(std::string_view text);

// The first and one past the last byte of the code point that byte `at` of valid `text` is part of.
size_t CodePointBegin(std::string_view text, size_t at);
size_t CodePointEnd(std::string_view text, size_t at);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Repairs a stream of bytes into valid UTF-8: each maximal invalid part (Unicode §3.9, U+FFFD
// substitution of maximal subparts) becomes one U+FFFD. Own one per stream.
class Utf8Repair {
 public:
  // Appends what `bytes` completes; an unfinished code point waits for the next call.
  void Push(std::string_view bytes, std::string* out);
  // The end of the stream: an unfinished code point becomes U+FFFD.
  void Finish(std::string* out);

 private:
  char pending_[4] = {};
  int size_ = 0;    // bytes pending
  int needed_ = 0;  // bytes of the code point being read
};

}  // namespace quire
