// First the shortest way in bytes, by Knuth's generalization of Dijkstra's algorithm to grammars,
// over the bytes that have a token of their own. Then tokens: at each state the longest token along
// that way, as long as the way reads bytes of one rule.
#include <algorithm>
#include <queue>
#include <string>
#include <utility>

#include "engine/grammar/pushdown_closing.h"

namespace quire {
namespace {

constexpr int64_t kNever = Pushdown::kNever;

class ClosingSearch {
 public:
  ClosingSearch(const GuideVocabulary& vocabulary, Pushdown* table)
      : vocabulary_(vocabulary),
        table_(*table),
        num_states_(static_cast<StateId>(table->states.size() - 1)),
        bytes_(num_states_, kNever),
        way_(num_states_, kNoWay),
        done_(num_states_) {}

  void Run() {
    IndexEdges();
    for (StateId state = 0; state < num_states_; ++state) {
      if (table_.states[state].accepts) Offer(state, 0, kNoWay);
    }
    for (Pushdown::Rule& rule : table_.rules) {
      if (rule.counted && rule.min == 0) rule.close = 0;
    }
    while (!queue_.empty()) {
      const auto [bytes, state] = queue_.top();
      queue_.pop();
      if (done_[state]) continue;
      done_[state] = true;
      FindTokens(state);
      OfferBackward(state);
    }
  }

 private:
  static constexpr uint32_t kNoWay = UINT32_MAX;
  static constexpr uint32_t kCallBit = 1u << 31;  // of way_: the index of a call, else a byte

  struct BackEdge {
    StateId from;
    uint32_t way;
  };

  void IndexEdges() {
    before_.resize(num_states_);
    callers_.resize(table_.rules.size());
    for (StateId state = 0; state < num_states_; ++state) {
      StateId last = Pushdown::kDead;
      for (int byte = 0; byte < 256; ++byte) {
        if (!vocabulary_.has_byte(static_cast<uint8_t>(byte))) continue;
        const StateId to = table_.Next(state, static_cast<uint8_t>(byte));
        if (to != Pushdown::kDead && to != last) {
          before_[to].push_back({state, static_cast<uint32_t>(byte)});
        }
        last = to;
      }
      const auto calls = table_.CallsOf(state);
      for (size_t i = 0; i < calls.size(); ++i) {
        const auto way = static_cast<uint32_t>(table_.states[state].first_call + i) | kCallBit;
        before_[calls[i].target].push_back({state, way});
        callers_[calls[i].rule].push_back({state, way});
      }
    }
  }

  void Offer(StateId state, int64_t bytes, uint32_t way) {
    if (bytes >= bytes_[state]) return;
    bytes_[state] = bytes;
    way_[state] = way;
    queue_.push({bytes, state});
  }

  int64_t RuleBytes(const Pushdown::Rule& rule) const {
    if (rule.counted && rule.min == 0) return 0;
    if (!done_[rule.start]) return kNever;
    return rule.counted ? bytes_[rule.start] * rule.min : bytes_[rule.start];
  }

  void OfferCall(StateId state, uint32_t way) {
    const Pushdown::CallEdge& call = table_.calls[way & ~kCallBit];
    const int64_t rule = RuleBytes(table_.rules[call.rule]);
    // A rule with the empty text need not be called: the state has the edges of the target too.
    if (rule == 0 || rule >= kNever || !done_[call.target]) return;
    Offer(state, rule + bytes_[call.target], way);
  }

  void OfferBackward(StateId state) {
    for (const BackEdge& edge : before_[state]) {
      if ((edge.way & kCallBit) != 0) {
        OfferCall(edge.from, edge.way);
      } else {
        Offer(edge.from, bytes_[state] + 1, edge.way);
      }
    }
    Pushdown::Rule& rule = table_.rules[table_.states[state].rule];
    if (rule.start != state) return;
    const int64_t part = table_.states[state].close;
    rule.close = rule.counted ? part * rule.min : part;
    for (const BackEdge& edge : callers_[table_.states[state].rule]) {
      OfferCall(edge.from, edge.way);
    }
  }

  // All states on the way are done before this one.
  void FindTokens(StateId state) {
    constexpr size_t kMaxRun = 32;  // bytes looked ahead for one token
    Pushdown::State& at = table_.states[state];
    if (way_[state] == kNoWay) {
      at.close = 0;
      return;
    }
    if ((way_[state] & kCallBit) != 0) {
      const Pushdown::CallEdge& call = table_.calls[way_[state] & ~kCallBit];
      const Pushdown::Rule& rule = table_.rules[call.rule];
      at.close = rule.close + table_.states[call.target].close;
      at.closing_token = table_.states[rule.start].closing_token;
      return;
    }
    std::string run;
    for (StateId to = state; run.size() < kMaxRun && way_[to] < 256;) {
      run.push_back(static_cast<char>(way_[to]));
      to = table_.Next(to, static_cast<uint8_t>(way_[to]));
    }
    at.closing_token = vocabulary_.LongestPrefix(run);
    StateId to = state;
    for (const char c : vocabulary_.bytes(at.closing_token)) {
      to = table_.Next(to, static_cast<uint8_t>(c));
    }
    at.close = 1 + table_.states[to].close;
  }

  using Entry = std::pair<int64_t, StateId>;

  const GuideVocabulary& vocabulary_;
  Pushdown& table_;
  const StateId num_states_;
  std::vector<int64_t> bytes_;  // of each state: the shortest way to the end of its rule
  std::vector<uint32_t> way_;   // its first edge
  std::vector<bool> done_;
  std::vector<std::vector<BackEdge>> before_;   // of each state: edges and calls that lead to it
  std::vector<std::vector<BackEdge>> callers_;  // of each rule
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> queue_;
};

}  // namespace

void FindClosing(const GuideVocabulary& vocabulary, Pushdown* table) {
  ClosingSearch(vocabulary, table).Run();
}

}  // namespace quire
