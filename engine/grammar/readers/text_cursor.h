// TextCursor: reads the code points of a grammar's text, and keeps the first fault found in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace quire {

class TextCursor {
 public:
  static constexpr char32_t kEnd = 0xFFFFFFFF;

  // `text` outlives the cursor. Invalid UTF-8 is a fault where it is read.
  explicit TextCursor(std::string_view text) : text_(text) {}

  // The code point at the cursor; kEnd at the end of the text and after a fault.
  char32_t Peek() const;
  char32_t Take();
  // Takes `word` if the text goes on with it.
  bool TakeWord(std::string_view word);
  // The number at the cursor, at most 2^32 - 2: larger ones are faults; nullopt if there is none.
  std::optional<uint32_t> TakeNumber();
  // A code point written with `digits` hexadecimal digits; a fault if they are not there.
  char32_t TakeHex(int digits);

  // Records a fault at the cursor, unless there is one.
  void Fail(const std::string& reason);
  bool failed() const { return !fault_.empty(); }
  // INVALID_ARGUMENT "WHAT: byte OFFSET: REASON", or OK.
  absl::Status status(const std::string& what) const;
  // INVALID_ARGUMENT "WHAT: line LINE, column COLUMN: REASON", or OK.
  absl::Status StatusByLine(const std::string& what) const;
  size_t offset() const { return at_; }
  void Return(size_t offset) { at_ = offset; }
  // The text from `offset` to the cursor.
  std::string From(size_t offset) const { return std::string(text_.substr(offset, at_ - offset)); }

 private:
  const std::string_view text_;
  size_t at_ = 0;
  size_t fault_at_ = 0;
  std::string fault_;
};

// "line 3, column 7" of a byte offset, both from 1, columns in code points.
std::string LineAndColumn(std::string_view text, size_t offset);

// The byte offset of the first invalid UTF-8 in `text`; npos if there is none.
size_t FindInvalid(std::string_view text);

}  // namespace quire
