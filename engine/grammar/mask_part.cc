// Walks the trie of the vocabulary with the places of each prefix. A prefix that the grammar
// refuses leaves its whole subtree out.
#include "engine/grammar/mask_part.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace quire {
namespace {

// A grammar with more ways at once is so ambiguous that some are dropped.
constexpr size_t kMaxPlaces = 512;
// Some ten times what an unambiguous grammar needs for a vocabulary of 128,000 tokens. Beyond it
// the tokens that were not reached are not allowed.
constexpr size_t kMaxSteps = 4 << 20;

class TrieWalk {
 public:
  TrieWalk(const Pushdown& table, const GuideVocabulary& vocabulary, RuleId rule)
      : vocabulary_(vocabulary),
        follow_(table.rules[rule].follow),
        stacks_(table),
        reader_(table, &stacks_, kMaxPlaces) {}

  PlaceReader& reader() { return reader_; }

  // Walks the nodes from `begin` to `end`, siblings and what is below them. `places` were read
  // before the byte of the siblings, and used `used`; with `room` there is one place, of a counted
  // rule, whose room began as that.
  void Visit(uint32_t begin, uint32_t end, const Places& places, uint32_t used,
             std::optional<uint32_t> room = std::nullopt) {
    const auto used_at = [&](const Places& at) { return room ? *room - at.list[0].room : used; };
    const auto nodes = vocabulary_.nodes();
    if (begin == end) return;
    const int above = nodes[begin].depth - 1;
    if (levels_.empty()) levels_.resize(vocabulary_.max_token_bytes() + 1);
    levels_[0] = places;
    for (uint32_t node = begin; node < end && reader_.steps() < kMaxSteps;) {
      const TrieNode& at = nodes[node];
      const Places& before = levels_[at.depth - above - 1];
      Places& after = levels_[at.depth - above];
      if (before.complete && follow_[at.byte]) part_.exits.push_back({node, used_at(before)});
      reader_.Read(before, at.byte, &after);
      if (after.dead()) {
        node = at.end;
        continue;
      }
      Allow(vocabulary_.tokens_at(node), {reader_.CloseOf(after), used_at(after)});
      if (++node < at.end) reader_.Call(&after);
    }
  }

  MaskPart Take() {
    for (auto& [key, tokens] : groups_) {
      TokenGroup group{.close = key.first, .used = key.second};
      if (tokens.size() <= vocabulary_.mask_words()) {
        group.tokens = std::move(tokens);
        group.tokens.shrink_to_fit();
      } else {
        group.words.resize(vocabulary_.mask_words());
        for (const int32_t token : tokens) group.words[token / 32] |= 1u << (token % 32);
      }
      part_.groups.push_back(std::move(group));
    }
    std::sort(part_.groups.begin(), part_.groups.end(),
              [](const TokenGroup& a, const TokenGroup& b) { return a.close < b.close; });
    part_.exits.shrink_to_fit();
    part_.steps = reader_.steps();
    return std::move(part_);
  }

 private:
  using GroupKey = std::pair<int64_t, uint32_t>;  // close and used

  void Allow(std::span<const int32_t> tokens, GroupKey key) {
    if (tokens.empty() || key.first >= Pushdown::kNever) return;
    if (group_ == nullptr || key != group_key_) {
      group_ = &groups_[key];
      group_key_ = key;
    }
    group_->insert(group_->end(), tokens.begin(), tokens.end());
  }

  const GuideVocabulary& vocabulary_;
  const std::bitset<256>& follow_;
  Stacks stacks_;
  PlaceReader reader_;
  std::vector<Places> levels_;  // of each prefix on the way to the node
  absl::flat_hash_map<GroupKey, std::vector<int32_t>> groups_;
  std::vector<int32_t>* group_ = nullptr;  // that the token before belongs to
  GroupKey group_key_;
  MaskPart part_;
};

}  // namespace

void TokenGroup::AddTo(uint32_t* mask) const {
  for (const int32_t token : tokens) mask[token / 32] |= 1u << (token % 32);
  for (size_t i = 0; i < words.size(); ++i) mask[i] |= words[i];
}

size_t MaskPart::bytes() const {
  size_t bytes = sizeof(MaskPart) + exits.size() * sizeof(MaskExit);
  for (const TokenGroup& group : groups) {
    bytes += sizeof(TokenGroup) + (group.tokens.size() + group.words.size()) * sizeof(uint32_t);
  }
  return bytes;
}

MaskPart MakeMaskPart(const Pushdown& table, const GuideVocabulary& vocabulary, const Place& place,
                      bool by_use) {
  TrieWalk walk(table, vocabulary, table.states[place.state].rule);
  Places places{.list = {place}};
  walk.reader().Call(&places);
  walk.Visit(0, static_cast<uint32_t>(vocabulary.nodes().size()), places, 0,
             by_use ? std::optional(place.room) : std::nullopt);
  return walk.Take();
}

MaskPart MakeMaskPart(const Pushdown& table, const GuideVocabulary& vocabulary,
                      const std::vector<MaskExit>& exits, StateId state) {
  TrieWalk walk(table, vocabulary, table.states[state].rule);
  Places places{.list = {{state, 0, 0, Stacks::kBottom}}};
  walk.reader().TakeReturns(&places);
  walk.reader().Call(&places);
  for (const MaskExit& exit : exits) {
    walk.Visit(exit.node, vocabulary.nodes()[exit.node].end, places, exit.used);
  }
  return walk.Take();
}

}  // namespace quire
