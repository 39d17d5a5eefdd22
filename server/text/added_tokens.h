// AddedTokenMatcher: finds added tokens written in a text, leftmost first and longest of those that
// start at one place. Immutable; any thread.
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
  // A stretch of text: one added token with the white space it takes, or (id -1) text without any.
  struct Part {
    int32_t id;
    size_t begin, end;
  };

  // `written` is the token as it stands in the texts to be searched; not empty.
  void Add(const AddedToken& token, const std::string& written);
  bool empty() const { return tokens_.empty(); }
  // Cuts `text` into parts that cover it, in order. Special tokens are left as text unless
  // `parse_special`. Time is linear for tokens of bounded length.
  std::vector<Part> Split(std::string_view text, bool parse_special) const;

 private:
  struct Node {
    int32_t token = -1;                              // index in tokens_ of the one that ends here
    std::vector<std::pair<char, int32_t>> children;  // few: searched in order
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
