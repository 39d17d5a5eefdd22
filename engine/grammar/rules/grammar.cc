// Expressions are values in a list; an id is the place in it.
#include "engine/grammar/rules/grammar.h"

#include <utility>

namespace quire {

ExprId Grammar::Add(Expr expr) {
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId Grammar::Bytes(std::string_view bytes) {
  return Add({.kind = Expr::Kind::kBytes, .bytes = std::string(bytes)});
}

ExprId Grammar::Chars(CodeSet chars) {
  return Add({.kind = Expr::Kind::kChars, .chars = std::move(chars)});
}

ExprId Grammar::Sequence(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  return Add({.kind = Expr::Kind::kSequence, .parts = std::move(parts)});
}

ExprId Grammar::Choice(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  return Add({.kind = Expr::Kind::kChoice, .parts = std::move(parts)});
}

ExprId Grammar::Repeat(ExprId part, uint32_t min, uint32_t max) {
  return Add({.kind = Expr::Kind::kRepeat, .parts = {part}, .min = min, .max = max});
}

ExprId Grammar::Call(RuleId rule) { return Add({.kind = Expr::Kind::kCall, .rule = rule}); }

ExprId Grammar::List(ExprId separator, std::vector<ExprId> parts, std::vector<bool> required) {
  parts.insert(parts.begin(), separator);
  return Add({.kind = Expr::Kind::kList, .parts = std::move(parts), .required = required});
}

ExprId Grammar::Accepted(std::shared_ptr<const Automaton> automaton) {
  return Add({.kind = Expr::Kind::kAutomaton, .automaton = std::move(automaton)});
}

RuleId Grammar::AddRule(std::string name) {
  rules_.push_back({std::move(name), 0});
  return static_cast<RuleId>(rules_.size() - 1);
}

RuleId Grammar::AddRule(std::string name, ExprId body) {
  const RuleId rule = AddRule(std::move(name));
  SetRule(rule, body);
  return rule;
}

}  // namespace quire
