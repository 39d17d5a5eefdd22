// GuideVocabulary: the texts of all tokens as a trie, through which grammars are walked. Built once
// for a model; immutable, any thread.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace quire {

// A node stands for the bytes on the way from the root. Nodes lie in preorder, children by
// ascending byte, so a subtree is a range of nodes.
struct TrieNode {
  uint8_t byte;          // the last byte of the way
  uint16_t depth;        // bytes of the way, >= 1: the root is no node
  uint32_t end;          // one past the subtree
  uint32_t first_token;  // tokens of exactly this text: trie_tokens from here to the next node's
  uint32_t below = UINT32_MAX;  // of bytes_below
};

class GuideVocabulary {
 public:
  // token_bytes[id] is what the token adds to a text; empty for special tokens, control tokens and
  // ids without a token, which are never allowed. INVALID_ARGUMENT if there is no EOS id, one is
  // outside of the vocabulary, or a token has more than 65535 bytes.
  static absl::StatusOr<std::shared_ptr<const GuideVocabulary>> Make(
      std::vector<std::string> token_bytes, std::vector<int32_t> eos_ids);

  int32_t size() const { return static_cast<int32_t>(token_bytes_.size()); }
  size_t mask_words() const { return (token_bytes_.size() + 31) / 32; }
  std::string_view bytes(int32_t token) const { return token_bytes_[token]; }
  std::span<const int32_t> eos_ids() const { return eos_ids_; }
  size_t max_token_bytes() const { return max_token_bytes_; }
  // Whether some token is exactly this byte: such bytes can always be written.
  bool has_byte(uint8_t byte) const { return has_byte_[byte]; }

  std::span<const TrieNode> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  // The tokens whose text is that of nodes()[node].
  std::span<const int32_t> tokens_at(uint32_t node) const {
    return std::span(trie_tokens_)
        .subspan(nodes_[node].first_token, nodes_[node + 1].first_token - nodes_[node].first_token);
  }
  // The bytes of the nodes below; null where there are only few nodes.
  const std::bitset<256>* bytes_below(uint32_t node) const {
    return nodes_[node].below == UINT32_MAX ? nullptr : &bytes_below_[nodes_[node].below];
  }
  // All tokens whose texts go on from that of nodes()[node].
  std::span<const int32_t> tokens_below(uint32_t node) const {
    return std::span(trie_tokens_)
        .subspan(nodes_[node + 1].first_token,
                 nodes_[nodes_[node].end].first_token - nodes_[node + 1].first_token);
  }
  // A longest token that `text` begins with; -1 if none.
  int32_t LongestPrefix(std::string_view text) const;

 private:
  GuideVocabulary() = default;
  void BuildTrie();
  void FindBytesBelow();

  std::vector<std::string> token_bytes_;  // [size]
  std::vector<int32_t> eos_ids_;
  std::vector<TrieNode> nodes_;       // and one past the end
  std::vector<int32_t> trie_tokens_;  // ids by ascending text
  std::vector<std::bitset<256>> bytes_below_;
  std::array<bool, 256> has_byte_ = {};
  size_t max_token_bytes_ = 0;
};

}  // namespace quire
