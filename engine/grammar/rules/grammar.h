// Grammar: rules over expressions, the form into which every language of grammars is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/rules/automaton.h"
#include "engine/grammar/rules/code_set.h"

namespace quire {

using ExprId = uint32_t;

// An expression over texts. `parts` and `rule` name others of the same grammar.
struct Expr {
  enum class Kind : uint8_t {
    kBytes,      // exactly `bytes`
    kChars,      // one code point of `chars`
    kSequence,   // the parts, one after the other; none: the empty text
    kChoice,     // one of the parts; none: no text at all
    kRepeat,     // parts[0], min to max times
    kCall,       // a text of `rule`
    kList,       // parts[1..] in this order with parts[0] between those that are there
    kAutomaton,  // a text that `automaton` accepts; it calls no rules
  };
  Kind kind = Kind::kSequence;
  std::string bytes;
  CodeSet chars;
  std::vector<ExprId> parts;
  uint32_t min = 0, max = 0;
  RuleId rule = 0;
  std::vector<bool> required;  // of a list: of each part after the first
  std::shared_ptr<const Automaton> automaton;
};

// Not thread-safe. Ids of expressions and rules count up from 0.
class Grammar {
 public:
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  ExprId Bytes(std::string_view bytes);
  ExprId Chars(CodeSet chars);
  ExprId Sequence(std::vector<ExprId> parts);
  ExprId Choice(std::vector<ExprId> parts);
  ExprId Repeat(ExprId part, uint32_t min, uint32_t max);  // max may be kUnbounded
  ExprId Optional(ExprId part) { return Repeat(part, 0, 1); }
  ExprId Call(RuleId rule);
  ExprId List(ExprId separator, std::vector<ExprId> parts, std::vector<bool> required);
  ExprId Accepted(std::shared_ptr<const Automaton> automaton);
  ExprId Empty() { return Sequence({}); }
  ExprId Never() { return Choice({}); }

  // A rule to call; `name` is for messages. SetRule gives its body, once.
  RuleId AddRule(std::string name);
  void SetRule(RuleId rule, ExprId body) { rules_[rule].body = body; }
  RuleId AddRule(std::string name, ExprId body);

  const Expr& expr(ExprId id) const { return exprs_[id]; }
  size_t num_exprs() const { return exprs_.size(); }
  size_t num_rules() const { return rules_.size(); }
  ExprId body(RuleId rule) const { return rules_[rule].body; }
  const std::string& name(RuleId rule) const { return rules_[rule].name; }

 private:
  struct Rule {
    std::string name;
    ExprId body = 0;
  };
  ExprId Add(Expr expr);

  std::vector<Expr> exprs_;
  std::vector<Rule> rules_;
};

}  // namespace quire
