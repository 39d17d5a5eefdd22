// WordBreaks: the places of a text that no merge of a BPE model over characters can cross: between
// two code points that no merge joins. Words between such places are encoded on their own, with the
// ids that the whole text would give. Filled once, then only read; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "server/text/model/char_ids.h"
#include "server/text/model/key_filter.h"
#include "server/text/model/merge_table.h"

namespace quire {

class WordBreaks {
 public:
  // `tokens` are the texts by id (valid UTF-8), of which `chars` has those of one code point. With
  // `leaves_out` a code point without a token may have no id at all, so that a merge joins those
  // around it.
  WordBreaks(const std::vector<std::string_view>& tokens,
             const std::vector<MergeTable::Merge>& merges, const CharIds& chars, bool leaves_out);

  // The end of the word that begins at byte `at` of `text` (valid UTF-8), which is longer than
  // `at`.
  size_t WordEnd(std::string_view text, size_t at) const;

 private:
  // The code points of most text, ASCII and U+2581 (a space), have a place in a table.
  static constexpr size_t kSpacePlace = 0x80, kPlaces = 0x81;

  bool Breaks(char32_t left, char32_t right) const;

  const CharIds& chars_;
  const bool leaves_out_;
  // The pairs that some merge joins. Another pair that is taken for one of them makes words longer,
  // and nothing else.
  KeyFilter joined_;
  std::vector<uint8_t> breaks_;  // [left place * kPlaces + right place]
};

}  // namespace quire
