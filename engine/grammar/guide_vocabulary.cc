// The trie, from the sorted texts: each text shares a prefix with the one before and adds nodes for
// the rest.
#include "engine/grammar/guide_vocabulary.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quire {

absl::StatusOr<std::shared_ptr<const GuideVocabulary>> GuideVocabulary::Make(
    std::vector<std::string> token_bytes, std::vector<int32_t> eos_ids) {
  constexpr size_t kMaxTokenBytes = 65535;  // TrieNode::depth
  std::shared_ptr<GuideVocabulary> vocabulary(new GuideVocabulary);
  if (eos_ids.empty()) return absl::InvalidArgumentError("vocabulary: no EOS id");
  for (const int32_t id : eos_ids) {
    if (id < 0 || static_cast<size_t>(id) >= token_bytes.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "vocabulary: EOS id ", id, " is not below the ", token_bytes.size(), " tokens"));
    }
    token_bytes[id].clear();
  }
  for (const std::string& bytes : token_bytes) {
    vocabulary->max_token_bytes_ = std::max(vocabulary->max_token_bytes_, bytes.size());
    if (bytes.size() == 1) vocabulary->has_byte_[static_cast<uint8_t>(bytes[0])] = true;
  }
  if (vocabulary->max_token_bytes_ > kMaxTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat("vocabulary: a token of ",
                                                   vocabulary->max_token_bytes_,
                                                   " bytes, the limit is ", kMaxTokenBytes));
  }
  vocabulary->token_bytes_ = std::move(token_bytes);
  vocabulary->eos_ids_ = std::move(eos_ids);
  vocabulary->BuildTrie();
  return vocabulary;
}

void GuideVocabulary::BuildTrie() {
  for (int32_t id = 0; id < size(); ++id) {
    if (!token_bytes_[id].empty()) trie_tokens_.push_back(id);
  }
  std::stable_sort(trie_tokens_.begin(), trie_tokens_.end(),
                   [this](int32_t a, int32_t b) { return token_bytes_[a] < token_bytes_[b]; });

  std::vector<uint32_t> way;  // the nodes of the text before
  std::string_view before;
  const auto close = [&](size_t depth) {
    for (; way.size() > depth; way.pop_back()) {
      nodes_[way.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  for (uint32_t i = 0; i < trie_tokens_.size(); ++i) {
    const std::string_view text = token_bytes_[trie_tokens_[i]];
    const size_t shared =
        std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first - text.begin();
    close(shared);
    for (size_t depth = shared; depth < text.size(); ++depth) {
      way.push_back(static_cast<uint32_t>(nodes_.size()));
      // A node on the way has no tokens: its range ends where the next node's begins.
      nodes_.push_back({.byte = static_cast<uint8_t>(text[depth]),
                        .depth = static_cast<uint16_t>(depth + 1),
                        .first_token = i});
    }
    before = text;
  }
  close(0);
  nodes_.push_back({.first_token = static_cast<uint32_t>(trie_tokens_.size())});
  FindBytesBelow();
}

void GuideVocabulary::FindBytesBelow() {
  constexpr uint32_t kFew = 4;  // nodes that cost less to walk than a set costs to keep
  for (auto node = static_cast<uint32_t>(nodes().size()); node-- > 0;) {
    const uint32_t end = nodes_[node].end;
    if (end - node <= kFew) continue;
    std::bitset<256> bytes;
    for (uint32_t at = node + 1; at < end;) {
      bytes.set(nodes_[at].byte);
      const std::bitset<256>* const below = bytes_below(at);
      if (below != nullptr) bytes |= *below;
      at = below != nullptr ? nodes_[at].end : at + 1;
    }
    nodes_[node].below = static_cast<uint32_t>(bytes_below_.size());
    bytes_below_.push_back(bytes);
  }
}

int32_t GuideVocabulary::LongestPrefix(std::string_view text) const {
  int32_t longest = -1;
  uint32_t node = 0, end = static_cast<uint32_t>(nodes().size());
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    while (node < end && nodes_[node].byte < byte) node = nodes_[node].end;
    if (node >= end || nodes_[node].byte != byte) break;
    if (const auto tokens = tokens_at(node); !tokens.empty()) longest = tokens.front();
    end = nodes_[node].end;
    ++node;
  }
  return longest;
}

}  // namespace quire
