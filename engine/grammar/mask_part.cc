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
      : table_(table),
        vocabulary_(vocabulary),
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
      const GroupKey key = {reader_.CloseOf(after), used_at(after)};
      Allow(vocabulary_.tokens_at(node), key);
      if (StaysBelow(node, after)) {
        AllowBelow(node, key, /*uses=*/room && IsBetween(after.list[0]));
        node = at.end;
        continue;
      }
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

  // Whether all texts below `node` leave the places as they are, but for counts that have room, and
  // end no rule whose end is an exit: the tokens below are like the node's own. A string goes on so
  // with most words.
  bool StaysBelow(uint32_t node, const Places& places) {
    const std::bitset<256>* const bytes = vocabulary_.bytes_below(node);
    if (bytes == nullptr || places.list.empty()) return false;
    if (places.complete && (*bytes & follow_).any()) return false;
    const auto left =
        static_cast<uint32_t>(vocabulary_.max_token_bytes() - vocabulary_.nodes()[node].depth);
    return std::all_of(places.list.begin(), places.list.end(), [&](const Place& place) {
      return place.need == 0 && (place.room == 0 || place.room > left) &&
             (*bytes & ~StayingBytes(place.state)).none();
    });
  }

  // All tokens below; with `uses` each byte is a text of the counted rule.
  void AllowBelow(uint32_t node, GroupKey key, bool uses) {
    const std::span<const int32_t> tokens = vocabulary_.tokens_below(node);
    if (!uses) return Allow(tokens, key);
    const size_t depth = vocabulary_.nodes()[node].depth;
    for (const int32_t& token : tokens) {
      const auto used = static_cast<uint32_t>(vocabulary_.bytes(token).size() - depth);
      Allow({&token, 1}, {key.first, key.second + used});
    }
  }

  // Whether the place is one between the texts of a counted rule.
  bool IsBetween(const Place& place) const {
    return place.state == table_.rules[table_.states[place.state].rule].start;
  }

  // The bytes that lead from a state to itself, or from between two texts of a counted rule to
  // there again. None if the state calls rules.
  const std::bitset<256>& StayingBytes(StateId state) {
    const auto [at, is_new] = staying_.try_emplace(state);
    if (!is_new || !table_.CallsOf(state).empty()) return at->second;
    const Pushdown::Rule& rule = table_.rules[table_.states[state].rule];
    for (int byte = 0; byte < 256; ++byte) {
      const StateId next = table_.Next(state, static_cast<uint8_t>(byte));
      const bool again = rule.counted && state == rule.start && next != Pushdown::kDead &&
                         table_.states[next].accepts;
      at->second[byte] = next == state || again;
    }
    return at->second;
  }

  void Allow(std::span<const int32_t> tokens, GroupKey key) {
    if (tokens.empty() || key.first >= Pushdown::kNever) return;
    if (group_ == nullptr || key != group_key_) {
      group_ = &groups_[key];
      group_key_ = key;
    }
    group_->insert(group_->end(), tokens.begin(), tokens.end());
  }

  const Pushdown& table_;
  const GuideVocabulary& vocabulary_;
  const std::bitset<256>& follow_;
  Stacks stacks_;
  PlaceReader reader_;
  absl::flat_hash_map<StateId, std::bitset<256>> staying_;
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
