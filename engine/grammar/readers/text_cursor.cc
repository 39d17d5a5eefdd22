// Overlong forms, surrogates and values above 10FFFF are invalid.
#include "engine/grammar/readers/text_cursor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

// The code point at the beginning of `text` and its bytes; 0 bytes if it is invalid.
struct Decoded {
  char32_t value = 0;
  int size = 0;
};

Decoded Decode(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const int size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < static_cast<size_t>(size)) return {};
  char32_t value = lead & (0xFF >> (size + 1));
  for (int i = 1; i < size; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if ((byte & 0xC0) != 0x80) return {};
    value = value << 6 | (byte & 0x3F);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kLeast[size] || value > 0x10FFFF || surrogate) return {};
  return {value, size};
}

int HexValue(char32_t c) {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  const char32_t lower = c | 0x20;
  return lower >= 'a' && lower <= 'f' ? static_cast<int>(lower - 'a') + 10 : -1;
}

}  // namespace

char32_t TextCursor::Peek() const {
  if (failed() || at_ >= text_.size()) return kEnd;
  return Decode(text_.substr(at_)).value;
}

char32_t TextCursor::Take() {
  if (failed() || at_ >= text_.size()) return kEnd;
  const Decoded here = Decode(text_.substr(at_));
  if (here.size == 0) {
    Fail("not valid UTF-8");
    return kEnd;
  }
  at_ += here.size;
  return here.value;
}

bool TextCursor::TakeWord(std::string_view word) {
  if (failed() || !text_.substr(at_).starts_with(word)) return false;
  at_ += word.size();
  return true;
}

std::optional<uint32_t> TextCursor::TakeNumber() {
  uint64_t value = 0;
  bool any = false;
  for (; Peek() >= '0' && Peek() <= '9'; any = true) {
    value = std::min<uint64_t>(value * 10 + (Take() - '0'), UINT32_MAX);
  }
  if (value == UINT32_MAX) Fail("the number is too large");
  return any ? std::optional(static_cast<uint32_t>(value)) : std::nullopt;
}

char32_t TextCursor::TakeHex(int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const int digit = HexValue(Peek());
    if (digit < 0) {
      Fail(absl::StrCat("expected ", digits, " hexadecimal digits"));
      return 0;
    }
    value = value << 4 | static_cast<char32_t>(digit);
    Take();
  }
  if (value > 0x10FFFF) Fail("not a code point");
  return value;
}

void TextCursor::Fail(const std::string& reason) {
  if (failed()) return;
  fault_at_ = at_;
  fault_ = reason;
}

absl::Status TextCursor::status(const std::string& what) const {
  if (!failed()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": byte ", fault_at_, ": ", fault_));
}

absl::Status TextCursor::StatusByLine(const std::string& what) const {
  if (!failed()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": ", LineAndColumn(text_, fault_at_), ": ", fault_));
}

std::string LineAndColumn(std::string_view text, size_t offset) {
  text = text.substr(0, offset);
  const auto lines = std::count(text.begin(), text.end(), '\n');
  text.remove_prefix(text.rfind('\n') + 1);  // npos + 1 is 0
  const auto columns = std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<uint8_t>(c) & 0xC0) != 0x80;  // the first byte of a code point
  });
  return absl::StrCat("line ", lines + 1, ", column ", columns + 1);
}

size_t FindInvalid(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const int size = Decode(text.substr(at)).size;
    if (size == 0) return at;
    at += size;
  }
  return std::string_view::npos;
}

}  // namespace quire
