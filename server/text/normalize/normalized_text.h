// NormalizedText: a text that normalizers rewrite, with the place in the source that each of its
// bytes comes from. Passage: a view of a text with such places. For one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/text/pattern/pattern.h"

namespace quire {

struct TokenOffset {
  int32_t begin = 0;  // byte offsets into the source
  int32_t end = 0;
};

// Byte i comes from the source's code point at origin[i], or, if the text is the source's own
// (origin is empty), from the one at base + i.
struct Passage {
  std::string_view text;
  size_t base = 0;  // where the passage's part of the source begins
  std::span<const TokenOffset> origin;

  // The source range of bytes [begin, end), not empty: the code points that contain them.
  TokenOffset ToSource(size_t begin, size_t end) const;
  Passage Slice(size_t begin, size_t end) const;
};

// A code point of a new text. `change` says how it stands to the old one: 0 if it replaces a code
// point, 1 if it is inserted, -n if it replaces n + 1 of them.
struct CharChange {
  char32_t value;
  int32_t change;
};

class NormalizedText {
 public:
  // Copies `passage`. Origins are kept only if `tracked`.
  void Reset(const Passage& passage, bool tracked);

  const std::string& text() const { return text_; }
  // The text as a passage, valid until the next change.
  Passage passage() const { return {text_, base_, origin_}; }

  // Makes the text that `changes` spell. The first `num_removed` code points of the old text belong
  // to no change; what the changes do not reach is removed too.
  void Transform(std::span<const CharChange> changes, size_t num_removed = 0);
  // Puts `prefix` before a text that is not empty; it belongs to the first code point.
  void Prepend(std::string_view prefix);
  // Puts `content` in the place of each of `matches`; it belongs to the match's last code point.
  void Replace(std::span<const Span> matches, std::string_view content);

 private:
  std::string text_, next_text_;
  bool tracked_ = false;
  size_t base_ = 0;
  std::vector<TokenOffset> origin_, next_origin_;  // one entry a byte, if tracked
};

}  // namespace quire
