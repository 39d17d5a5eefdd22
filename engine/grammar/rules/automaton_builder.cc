// Expressions become fragments of an Nfa between two states: no edge of a fragment leads into its
// first state or out of its last.
#include "engine/grammar/rules/automaton_builder.h"

#include <algorithm>
#include <optional>

#include "engine/grammar/rules/nfa.h"

namespace quire {

class NfaWriter {
 public:
  explicit NfaWriter(AutomatonBuilder* builder) : builder_(*builder) {
    nfa_.start = NewState();
    nfa_.accept = NewState();
  }

  const Nfa& Write(ExprId id) {
    Add(id, nfa_.start, nfa_.accept);
    return nfa_;
  }

 private:
  bool exceeded() const { return builder_.meter_.exceeded(); }
  uint32_t NewState() {
    builder_.meter_.Spend(4);
    return nfa_.AddState();
  }

  void Add(ExprId id, uint32_t from, uint32_t to) {
    const Expr& expr = builder_.grammar_.expr(id);
    switch (expr.kind) {
      case Expr::Kind::kBytes: AddBytes(expr.bytes, from, to); break;
      case Expr::Kind::kChars: AddChars(expr.chars, from, to); break;
      case Expr::Kind::kSequence: AddSequence(expr.parts, from, to); break;
      case Expr::Kind::kChoice:
        for (const ExprId part : expr.parts) {
          if (!exceeded()) Add(part, from, to);
        }
        break;
      case Expr::Kind::kRepeat: AddRepeat(expr, from, to); break;
      case Expr::Kind::kCall: AddCall(expr.rule, from, to); break;
      case Expr::Kind::kList: AddList(expr, from, to); break;
      case Expr::Kind::kAutomaton: AddAutomaton(*expr.automaton, from, to); break;
    }
  }

  void AddBytes(const std::string& bytes, uint32_t from, uint32_t to) {
    if (bytes.empty()) return nfa_.AddEmpty(from, to);
    for (size_t i = 0; i < bytes.size(); ++i) {
      const auto byte = static_cast<uint8_t>(bytes[i]);
      const uint32_t next = i + 1 == bytes.size() ? to : NewState();
      nfa_.AddBytes(from, byte, byte, next);
      from = next;
    }
  }

  void AddChars(const CodeSet& chars, uint32_t from, uint32_t to) {
    for (const ByteSequence& sequence : chars.Sequences()) {
      uint32_t at = from;
      for (int i = 0; i < sequence.size; ++i) {
        const uint32_t next = i + 1 == sequence.size ? to : NewState();
        nfa_.AddBytes(at, sequence.bytes[i].first, sequence.bytes[i].last, next);
        at = next;
      }
    }
  }

  void AddSequence(const std::vector<ExprId>& parts, uint32_t from, uint32_t to) {
    if (parts.empty()) return nfa_.AddEmpty(from, to);
    for (size_t i = 0; i < parts.size() && !exceeded(); ++i) {
      const uint32_t next = i + 1 == parts.size() ? to : NewState();
      Add(parts[i], from, next);
      from = next;
    }
  }

  void AddCall(RuleId rule, uint32_t from, uint32_t to) {
    nfa_.AddCall(from, rule, to);
    if (builder_.nullable_[rule]) nfa_.AddEmpty(from, to);
  }

  void AddRepeat(const Expr& expr, uint32_t from, uint32_t to) {
    if (const auto rule = builder_.CountedRuleOf(expr)) return AddCall(*rule, from, to);
    for (uint32_t i = 0; i < expr.min && !exceeded(); ++i) {
      const uint32_t next = NewState();
      Add(expr.parts[0], from, next);
      from = next;
    }
    if (expr.max == Grammar::kUnbounded) {
      const uint32_t loop = NewState();
      nfa_.AddEmpty(from, loop);
      Add(expr.parts[0], loop, loop);
      return nfa_.AddEmpty(loop, to);
    }
    for (uint32_t i = expr.min; i < expr.max && !exceeded(); ++i) {
      const uint32_t next = NewState();
      nfa_.AddEmpty(from, to);
      Add(expr.parts[0], from, next);
      from = next;
    }
    nfa_.AddEmpty(from, to);
  }

  // Two tracks: before the first part that is there, and after it, where a separator comes first.
  // Both lead into the same copy of a part.
  void AddList(const Expr& expr, uint32_t from, uint32_t to) {
    uint32_t before = NewState(), after = NewState();
    nfa_.AddEmpty(from, before);
    for (size_t i = 1; i < expr.parts.size() && !exceeded(); ++i) {
      const uint32_t part = NewState(), next_before = NewState(), next_after = NewState();
      nfa_.AddEmpty(before, part);
      Add(expr.parts[0], after, part);
      Add(expr.parts[i], part, next_after);
      if (!expr.required[i - 1]) {
        nfa_.AddEmpty(before, next_before);
        nfa_.AddEmpty(after, next_after);
      }
      before = next_before;
      after = next_after;
    }
    nfa_.AddEmpty(before, to);
    nfa_.AddEmpty(after, to);
  }

  void AddAutomaton(const Automaton& automaton, uint32_t from, uint32_t to) {
    std::vector<uint32_t> copies(automaton.states.size());
    for (uint32_t& copy : copies) copy = NewState();
    nfa_.AddEmpty(from, copies[0]);
    for (uint32_t state = 0; state < copies.size() && !exceeded(); ++state) {
      if (automaton.states[state].accepts) nfa_.AddEmpty(copies[state], to);
      for (int first = 0, end; first < 256; first = end) {
        const uint32_t target = automaton.Next(state, static_cast<uint8_t>(first));
        for (end = first + 1; end < 256; ++end) {
          if (automaton.Next(state, static_cast<uint8_t>(end)) != target) break;
        }
        if (target != Automaton::kDead) {
          nfa_.AddBytes(copies[state], static_cast<uint8_t>(first), static_cast<uint8_t>(end - 1),
                        copies[target]);
        }
      }
      builder_.meter_.Spend(64);
    }
  }

  AutomatonBuilder& builder_;
  Nfa nfa_;
};

AutomatonBuilder::AutomatonBuilder(const Grammar& grammar, WorkMeter* meter, bool counts)
    : grammar_(grammar), meter_(*meter), counts_(counts), nullable_(grammar.num_rules()) {
  if (!counts) return;  // expressions for an Intersection, which call no rules
  for (bool changed = true; changed && !meter_.exceeded();) {
    changed = false;
    for (RuleId rule = 0; rule < grammar.num_rules(); ++rule) {
      if (nullable_[rule] || !ComputeNullable(grammar.body(rule))) continue;
      nullable_[rule] = changed = true;
    }
  }
}

bool AutomatonBuilder::ComputeNullable(ExprId id) const {
  const Expr& expr = grammar_.expr(id);
  meter_.Spend(1 + expr.parts.size());
  const auto nullable = [this](ExprId part) { return ComputeNullable(part); };
  switch (expr.kind) {
    case Expr::Kind::kBytes: return expr.bytes.empty();
    case Expr::Kind::kChars: return false;
    case Expr::Kind::kSequence: return std::all_of(expr.parts.begin(), expr.parts.end(), nullable);
    case Expr::Kind::kChoice: return std::any_of(expr.parts.begin(), expr.parts.end(), nullable);
    case Expr::Kind::kRepeat: return expr.min == 0 || nullable(expr.parts[0]);
    case Expr::Kind::kCall: return nullable_[expr.rule];
    case Expr::Kind::kAutomaton: return expr.automaton->states[0].accepts;
    case Expr::Kind::kList: break;
  }
  size_t needed = 0;
  for (size_t i = 1; i < expr.parts.size(); ++i) {
    if (!expr.required[i - 1]) continue;
    if (!nullable(expr.parts[i])) return false;
    ++needed;
  }
  return needed <= 1 || nullable(expr.parts[0]);
}

bool AutomatonBuilder::CallsRules(ExprId id) const {
  const Expr& expr = grammar_.expr(id);
  meter_.Spend(1);
  return expr.kind == Expr::Kind::kCall ||
         std::any_of(expr.parts.begin(), expr.parts.end(),
                     [this](ExprId part) { return CallsRules(part); });
}

std::optional<RuleId> AutomatonBuilder::CountedRuleOf(const Expr& repeat) {
  constexpr uint32_t kShort = 32;  // copies that are written out
  const uint32_t copies = repeat.max == Grammar::kUnbounded ? repeat.min : repeat.max;
  if (!counts_ || copies <= kShort || CallsRules(repeat.parts[0])) return std::nullopt;
  const auto [at, is_new] =
      counted_ids_.try_emplace({repeat.parts[0], repeat.min, repeat.max}, UINT32_MAX);
  if (!is_new) return at->second == UINT32_MAX ? std::nullopt : std::optional(at->second);
  const std::shared_ptr<const Automaton> part = Build(repeat.parts[0]);
  if (part == nullptr || part->states[0].accepts) return std::nullopt;
  for (uint32_t state = 0; state < part->states.size(); ++state) {
    if (part->states[state].accepts && part->HasMoves(state)) return std::nullopt;
  }
  if (std::find(part->next.begin(), part->next.end(), 0u) != part->next.end()) return std::nullopt;
  counted_.push_back({part, repeat.min, repeat.max});
  nullable_.push_back(repeat.min == 0);
  const auto rule = static_cast<RuleId>(nullable_.size() - 1);
  counted_ids_[{repeat.parts[0], repeat.min, repeat.max}] = rule;
  return rule;
}

std::shared_ptr<const Automaton> AutomatonBuilder::Build(ExprId expr) {
  NfaWriter writer(this);
  const Nfa& nfa = writer.Write(expr);
  return meter_.exceeded() ? nullptr : Determinize(nfa, &meter_);
}

}  // namespace quire
