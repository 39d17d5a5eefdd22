// A marker's first byte occurs in it once, so a mismatch leaves no shorter match.
#include "server/answer_parts/marker_scan.h"

#include <utility>

namespace quire {

bool MarkerScan::Push(char byte, std::string* text) {
  if (byte != marker_[matched_] && matched_ > 0) Flush(text);
  if (byte == marker_[matched_]) {
    held_ += byte;
    if (++matched_ < marker_.size()) return false;
    found_ = std::exchange(held_, std::string());
    matched_ = 0;
    return true;
  }
  if (!IsLineBreak(byte)) Flush(text);
  (IsLineBreak(byte) ? held_ : *text) += byte;
  return false;
}

void MarkerScan::Flush(std::string* text) {
  *text += held_;
  held_.clear();
  matched_ = 0;
}

}  // namespace quire
