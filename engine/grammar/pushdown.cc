// Makes the table: rules by the order in which they are met, then their order of calls, what may
// follow each, and how to finish.
#include "engine/grammar/pushdown.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/pushdown_closing.h"
#include "engine/grammar/rules/automaton_builder.h"

namespace quire {
namespace {

class PushdownWriter {
 public:
  PushdownWriter(const Grammar& grammar, WorkMeter* meter)
      : grammar_(grammar), meter_(*meter), builder_(grammar, meter) {}

  absl::Status AddRules(RuleId start) {
    IdOf(start);
    for (RuleId at = 0; at < sources_.size(); ++at) {
      const size_t own = grammar_.num_rules();
      std::shared_ptr<const Automaton> automaton;
      Pushdown::Rule rule;
      if (sources_[at] < own) {
        automaton = builder_.Build(grammar_.body(sources_[at]));
      } else {
        const CountedRule& counted = builder_.counted()[sources_[at] - own];
        automaton = counted.part;
        rule.counted = true;
        rule.min = counted.min;
        rule.max = counted.max;
      }
      RETURN_IF_ERROR(meter_.status());
      Append(*automaton, rule, at);
    }
    table_.states.push_back({.first_call = static_cast<uint32_t>(table_.calls.size())});
    return absl::OkStatus();
  }

  // Orders the rules so that callers come before what they call without a byte read between.
  absl::Status Rank() {
    enum : uint8_t { kNew, kOpen, kClosed };
    struct Visit {
      RuleId rule;
      size_t next_call;
    };
    std::vector<uint8_t> seen(table_.rules.size(), kNew);
    auto rank = static_cast<uint32_t>(table_.rules.size());
    for (RuleId root = 0; root < table_.rules.size(); ++root) {
      if (seen[root] != kNew) continue;
      std::vector<Visit> open = {{root, 0}};
      seen[root] = kOpen;
      while (!open.empty()) {
        Visit& visit = open.back();
        const auto calls = table_.CallsOf(table_.rules[visit.rule].start);
        if (visit.next_call == calls.size()) {
          table_.rules[visit.rule].rank = --rank;
          seen[visit.rule] = kClosed;
          open.pop_back();
          continue;
        }
        const RuleId called = calls[visit.next_call++].rule;
        if (seen[called] == kOpen) return Circle(called);
        if (seen[called] != kNew) continue;
        seen[called] = kOpen;
        open.push_back({called, 0});
      }
    }
    return absl::OkStatus();
  }

  void FindFollow() {
    std::vector<RuleId> by_rank(table_.rules.size());
    for (RuleId rule = 0; rule < by_rank.size(); ++rule) by_rank[table_.rules[rule].rank] = rule;
    first_.resize(by_rank.size());
    for (size_t i = by_rank.size(); i-- > 0;) {
      first_[by_rank[i]] = FirstOf(table_.rules[by_rank[i]].start);
    }
    std::vector<std::vector<RuleId>> last_calls(by_rank.size());  // a rule may end with these
    for (StateId state = 0; state + 1 < table_.states.size(); ++state) {
      for (const Pushdown::CallEdge& call : table_.CallsOf(state)) {
        table_.rules[call.rule].follow |= FirstOf(call.target);
        if (!table_.states[call.target].accepts) continue;
        last_calls[table_.states[state].rule].push_back(call.rule);
      }
    }
    std::vector<RuleId> work = by_rank;
    while (!work.empty()) {
      const RuleId rule = work.back();
      work.pop_back();
      for (const RuleId called : last_calls[rule]) {
        auto& follow = table_.rules[called].follow;
        const auto merged = follow | table_.rules[rule].follow;
        if (merged == follow) continue;
        follow = merged;
        work.push_back(called);
      }
    }
  }

  Pushdown& table() { return table_; }

 private:
  // The place of a grammar's rule in the table.
  RuleId IdOf(RuleId source) {
    const auto [at, is_new] = ids_.try_emplace(source, static_cast<RuleId>(sources_.size()));
    if (is_new) sources_.push_back(source);
    return at->second;
  }

  void Append(const Automaton& automaton, Pushdown::Rule rule, RuleId id) {
    const auto base = static_cast<StateId>(table_.states.size());
    rule.start = base;
    rule.class_of = automaton.class_of;
    const auto row = static_cast<uint32_t>(table_.next.size());
    for (uint32_t state = 0; state < automaton.states.size(); ++state) {
      table_.states.push_back({.row = static_cast<uint32_t>(row + state * automaton.num_classes()),
                               .first_call = static_cast<uint32_t>(table_.calls.size()),
                               .rule = id,
                               .accepts = automaton.states[state].accepts,
                               .moves = automaton.HasMoves(state)});
      for (const auto& call : automaton.states[state].calls) {
        table_.calls.push_back({IdOf(call.rule), base + call.target});
      }
    }
    for (const uint32_t to : automaton.next) {
      table_.next.push_back(to == Automaton::kDead ? Pushdown::kDead : base + to);
    }
    table_.rules.push_back(std::move(rule));
  }

  absl::Status Circle(RuleId rule) const {
    const RuleId source = sources_[rule];
    return absl::InvalidArgumentError(absl::StrCat(
        "grammar: ", source < grammar_.num_rules() ? grammar_.name(source) : "a repetition",
        " can lead to itself before any text; write left recursion as a repetition"));
  }

  std::bitset<256> FirstOf(StateId state) const {
    std::bitset<256> out;
    for (int byte = 0; byte < 256; ++byte) {
      out[byte] = table_.Next(state, static_cast<uint8_t>(byte)) != Pushdown::kDead;
    }
    for (const Pushdown::CallEdge& call : table_.CallsOf(state)) out |= first_[call.rule];
    return out;
  }

  const Grammar& grammar_;
  WorkMeter& meter_;
  AutomatonBuilder builder_;
  Pushdown table_;
  std::vector<RuleId> sources_;              // of each rule of the table
  absl::flat_hash_map<RuleId, RuleId> ids_;  // the other way
  std::vector<std::bitset<256>> first_;      // of each rule: the bytes it may begin with
};

}  // namespace

size_t Pushdown::bytes() const {
  return states.size() * sizeof(State) + next.size() * sizeof(StateId) +
         calls.size() * sizeof(CallEdge) + rules.size() * sizeof(Rule);
}

absl::StatusOr<Pushdown> MakePushdown(const Grammar& grammar, RuleId start,
                                      const GuideVocabulary& vocabulary, WorkMeter* meter) {
  PushdownWriter writer(grammar, meter);
  RETURN_IF_ERROR(writer.AddRules(start));
  RETURN_IF_ERROR(writer.Rank());
  writer.FindFollow();
  FindClosing(vocabulary, &writer.table());
  // A text that is empty needs no token, but a rule of no text has no end at all.
  if (writer.table().rules[0].close >= Pushdown::kNever) {
    return absl::InvalidArgumentError(
        "grammar: no text can be finished: a rule never ends, an alternative is impossible, or the "
        "vocabulary has no token for a byte that is needed");
  }
  return std::move(writer.table());
}

}  // namespace quire
