// MarkerScan: looks for a marker in a text that comes byte by byte, and lets go of text as soon as
// it cannot be part of the marker. Line breaks before a marker belong to it: templates put them
// there. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quire {

inline bool IsLineBreak(char byte) { return byte == '\n' || byte == '\r'; }
inline bool IsJsonSpace(char byte) { return IsLineBreak(byte) || byte == ' ' || byte == '\t'; }

class MarkerScan {
 public:
  // The first byte of `marker` occurs in it once, and is no line break. The marker outlives this.
  explicit MarkerScan(std::string_view marker) : marker_(marker) {}

  // Appends what is certain to be text to `text`. True when the byte completes the marker; the
  // search then starts anew.
  bool Push(char byte, std::string* text);
  // The text ends: appends what was held back.
  void Flush(std::string* text);
  bool holds() const { return !held_.empty(); }
  // The bytes that the last marker took: line breaks, and the marker.
  const std::string& found() const { return found_; }

 private:
  const std::string_view marker_;
  std::string held_;    // line breaks, then the marker's first bytes
  size_t matched_ = 0;  // of the marker
  std::string found_;
};

}  // namespace quire
