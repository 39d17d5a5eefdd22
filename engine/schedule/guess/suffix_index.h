// SuffixIndex: finds where the last tokens of a growing text stood before. Every place of the text
// is in a list of the places behind the same two tokens, latest first, as in the match finders of
// data compression. A look-up reads the head of one list, so its cost does not grow with the text.
//
// 4 bytes a token and 4 to 8 for the heads of the lists, all taken by the constructor. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/schedule/guess/known_text.h"

namespace quire {

class SuffixIndex {
 public:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kLeast = 2;     // tokens that a place must have in common with the end
  static constexpr int32_t kLongest = 32;  // more tokens in common count as that many
  static constexpr int32_t kCandidates = 16;  // places that a look-up compares, latest first

  // Of a text that has at most `max_tokens` tokens.
  explicit SuffixIndex(int32_t max_tokens);

  // Enters the places of the text's first `end` tokens; never fewer than before. O(places entered).
  void Enter(const KnownText& text, int32_t end);
  int32_t entered() const { return entered_; }
  // Of the last kCandidates entered places behind the text's last two tokens, its end excepted, the
  // place with the most tokens in common before it; the latest of equals; kNone if there is none.
  int32_t Find(const KnownText& text) const;

 private:
  // Tokens of other lists that a look-up skips at most: they share a head by chance.
  static constexpr int32_t kMostVisits = 4 * kCandidates;

  // The list of the places behind these two tokens.
  size_t HeadOf(int32_t before_last, int32_t last) const;

  int32_t entered_ = 1;  // a place has two tokens before it
  int32_t head_bits_ = 0;
  std::vector<int32_t> heads_;   // the latest place of each list; 0: none
  std::vector<int32_t> before_;  // at a place: the one before it in its list
};

}  // namespace quire
