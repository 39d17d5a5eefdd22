// Parts of the hand-written scanners: the loop that cuts a piece, the ends of white space, and the
// contractions of English. Private to them; pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "server/text/pattern/pattern.h"
#include "server/text/unicode/unicode.h"

namespace quire {

// Cuts each piece where `piece_end(text, p)` says that the part from p, within the piece's text,
// ends.
template <class PieceEnd>
void CutPieces(std::string_view text, std::span<const Span> pieces, std::vector<Span>* out,
               const PieceEnd& piece_end) {
  for (const Span& piece : pieces) {
    const std::string_view part = text.substr(piece.begin, piece.end - piece.begin);
    uint32_t begin = piece.begin;
    for (const char* p = text.data() + begin; p < part.data() + part.size();) {
      p = piece_end(part, p);
      const uint32_t end = static_cast<uint32_t>(p - text.data());
      out->push_back({begin, end});
      begin = end;
    }
  }
}

inline bool IsNewline(char c) { return c == '\n' || c == '\r'; }

// Past the code point at p.
inline const char* NextChar(const char* p) {
  return p + (static_cast<uint8_t>(*p) < 0x80 ? 1 : DecodeUtf8(p).size);
}

// Length of a contraction ('s 't 're 've 'm 'll 'd) at the apostrophe p, 0 if none.
inline size_t ContractionSize(const char* p, const char* end, bool any_case) {
  const auto letter = [&](int i) -> char {
    if (p + i >= end) return 0;
    const char c = p[i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return letter(2) == 'e' ? 3 : 0;
    case 'l': return letter(2) == 'l' ? 3 : 0;
    // The long s, U+017F, is an s in any case.
    case '\xC5': return any_case && letter(2) == '\xBF' ? 3 : 0;
    default: return 0;
  }
}

// The end of `\s*[\r\n]+|\s+(?!\S)|\s+` for white space in [p, run_end) of a text that ends at
// `end`: the last newline; else all of it before the end of the text, else all but its last code
// point, which then goes with what follows; a single one is taken. Without `newlines`, of the last
// two branches only.
inline const char* SpacesEnd(const char* p, const char* run_end, const char* end, bool newlines) {
  for (const char* last = run_end; newlines && last > p; --last) {
    if (IsNewline(last[-1])) return last;
  }
  if (run_end == end) return run_end;
  const char* last = run_end - 1;
  while ((static_cast<uint8_t>(*last) & 0xC0) == 0x80) --last;
  return last > p ? last : run_end;
}

}  // namespace quire
