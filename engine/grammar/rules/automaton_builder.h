// AutomatonBuilder: makes the expressions of a grammar into deterministic automata.
#pragma once

#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/grammar/rules/automaton.h"
#include "engine/grammar/rules/grammar.h"
#include "engine/grammar/rules/guide_limits.h"

namespace quire {

// A rule of the builder's own: a large repetition of a short text, which is counted instead of
// written out. No text of `part` is the beginning of another, so the count is certain.
struct CountedRule {
  std::shared_ptr<const Automaton> part;
  uint32_t min, max;  // max may be Grammar::kUnbounded
};

class AutomatonBuilder {
 public:
  // Both outlive the builder; the grammar has the bodies of all rules that expressions call.
  // Without `counts`, large repetitions are written out like others, and no rules may be called.
  AutomatonBuilder(const Grammar& grammar, WorkMeter* meter, bool counts = true);

  // The automaton of an expression; null once the meter is exceeded.
  std::shared_ptr<const Automaton> Build(ExprId expr);
  // Rules that Build added. Their ids follow those of the grammar.
  const std::vector<CountedRule>& counted() const { return counted_; }

 private:
  bool ComputeNullable(ExprId id) const;
  bool CallsRules(ExprId id) const;
  // The rule that counts the repetition; nullopt if it is short or cannot be counted.
  std::optional<RuleId> CountedRuleOf(const Expr& repeat);

  friend class NfaWriter;
  const Grammar& grammar_;
  WorkMeter& meter_;
  const bool counts_;
  std::vector<bool> nullable_;  // of each rule: has the empty text
  std::vector<CountedRule> counted_;
  absl::flat_hash_map<std::tuple<ExprId, uint32_t, uint32_t>, RuleId> counted_ids_;
};

}  // namespace quire
