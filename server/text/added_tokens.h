// AddedTokenMatcher: finds added tokens in a text: leftmost first; where several
// start at one place, the longest. Immutable after the last Add; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/text/tokenizer_file.h"

namespace quire {

class AddedTokenMatcher {
 public:
  // One added token with the white space that it takes, or (id -1) text without added tokens.
  struct Part {
    int32_t id;
    size_t begin, end;
  };

  // `written` is the token as it appears in the searched texts; not empty. Of two tokens written
  // alike, the first is found.
  void Add(const AddedToken& token, const std::string& written);
  bool empty() const { return tokens_.empty(); }
  // Cuts `text` into parts that cover it, in order. Special tokens stay text unless
  // `parse_special`. Linear in the text for tokens of bounded length.
  std::vector<Part> Split(std::string_view text, bool parse_special) const;

 private:
  struct Node {
    int32_t token = -1;                              // that ends here: index in tokens_; -1: none
    std::vector<std::pair<char, int32_t>> children;  // few, so searched in order
  };
  struct Match {
    int32_t token;  // -1: none
    size_t size;
  };
  Match LongestAt(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = {Node{}};  // a trie, the root first
  std::array<bool, 256> starts_ = {};   // bytes that some token starts with
};

}  // namespace quire
