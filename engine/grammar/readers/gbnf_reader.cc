// Recursive descent over the notation: NAME ::= alternatives of literals, classes, names and groups
// with quantifiers, and comments from # to the end of a line. A rule ends where the next one, or
// the text, begins; lines within a rule may break after "::=", "|" and inside groups.
#include "engine/grammar/readers/gbnf_reader.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/readers/text_cursor.h"

namespace quire {
namespace {

constexpr char32_t kEnd = TextCursor::kEnd;

bool IsNameChar(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfReader {
 public:
  GbnfReader(std::string_view text, const GuideLimits& limits, Grammar* grammar)
      : cursor_(text), limits_(limits), grammar_(*grammar) {}

  absl::StatusOr<RuleId> Read() {
    SkipSpace(/*lines=*/true);
    while (cursor_.Peek() != kEnd) Definition();
    RETURN_IF_ERROR(cursor_.status("grammar"));
    for (const auto& [name, rule] : rules_) {
      if (!defined_[rule]) {
        return absl::InvalidArgumentError(absl::StrCat("grammar: rule ", name, " is not defined"));
      }
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) {
      return absl::InvalidArgumentError("grammar: there is no rule root");
    }
    return root->second;
  }

 private:
  void SkipSpace(bool lines) {
    for (;;) {
      const char32_t c = cursor_.Peek();
      if (c == '#') {
        while (cursor_.Peek() != '\n' && cursor_.Peek() != kEnd) cursor_.Take();
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        cursor_.Take();
      } else {
        return;
      }
    }
  }

  std::string Name() {
    std::string name;
    while (IsNameChar(cursor_.Peek())) name.push_back(static_cast<char>(cursor_.Take()));
    if (name.empty()) cursor_.Fail("expected the name of a rule");
    return name;
  }

  RuleId RuleOf(const std::string& name) {
    const auto at = rules_.find(name);
    if (at != rules_.end()) return at->second;
    if (rules_.size() >= limits_.max_rules) {
      cursor_.Fail(absl::StrCat("more than ", limits_.max_rules, " rules"));
    }
    defined_.push_back(false);
    return rules_[name] = grammar_.AddRule(absl::StrCat("rule ", name));
  }

  void Definition() {
    const std::string name = Name();
    SkipSpace(false);
    if (!cursor_.TakeWord("::=")) cursor_.Fail("expected ::=");
    if (cursor_.failed()) return;
    const RuleId rule = RuleOf(name);
    if (defined_[rule]) cursor_.Fail(absl::StrCat("rule ", name, " is defined twice"));
    SkipSpace(true);
    grammar_.SetRule(rule, Alternatives(0));
    defined_[rule] = true;
    const char32_t c = cursor_.Peek();
    if (c != '\n' && c != '\r' && c != kEnd) cursor_.Fail("expected the end of the rule");
    SkipSpace(true);
  }

  ExprId Alternatives(int depth) {
    std::vector<ExprId> choices;
    for (;;) {
      choices.push_back(Sequence(depth));
      if (!cursor_.TakeWord("|")) break;
      SkipSpace(true);
    }
    return grammar_.Choice(std::move(choices));
  }

  ExprId Sequence(int depth) {
    std::vector<ExprId> parts;
    for (;;) {
      const char32_t c = cursor_.Peek();
      if (c != '"' && c != '[' && c != '(' && c != '.' && !IsNameChar(c)) break;
      ExprId part = Item(depth);
      SkipSpace(depth > 0);
      part = Quantified(part, depth);
      parts.push_back(part);
    }
    if (cursor_.Peek() == '<' || cursor_.Peek() == '!') {
      cursor_.Fail("tokens are not supported: write their text");
    }
    return grammar_.Sequence(std::move(parts));
  }

  ExprId Quantified(ExprId part, int depth) {
    for (;;) {
      uint32_t min = 0, max = Grammar::kUnbounded;
      if (cursor_.TakeWord("?")) {
        max = 1;
      } else if (cursor_.TakeWord("+")) {
        min = 1;
      } else if (cursor_.TakeWord("{")) {
        Bounds(&min, &max);
      } else if (!cursor_.TakeWord("*")) {
        return part;
      }
      if (++num_quantifiers_ > limits_.max_depth) cursor_.Fail("too many quantifiers in a row");
      part = grammar_.Repeat(part, min, max);
      SkipSpace(depth > 0);
    }
  }

  void Bounds(uint32_t* min, uint32_t* max) {
    SkipSpace(false);
    const auto least = cursor_.TakeNumber();
    *min = least.value_or(0);
    *max = *min;
    SkipSpace(false);
    if (cursor_.TakeWord(",")) {
      SkipSpace(false);
      *max = cursor_.TakeNumber().value_or(Grammar::kUnbounded);
      SkipSpace(false);
    } else if (!least) {
      cursor_.Fail("expected a count");
    }
    if (!cursor_.TakeWord("}")) cursor_.Fail("expected \"}\"");
    if (*min > *max) cursor_.Fail("the least count is above the largest");
  }

  ExprId Item(int depth) {
    num_quantifiers_ = 0;
    if (cursor_.TakeWord("\"")) return Literal();
    if (cursor_.TakeWord("[")) return Class();
    if (cursor_.TakeWord(".")) return grammar_.Chars(CodeSet().Complement());
    if (!cursor_.TakeWord("(")) return Call();
    if (depth >= limits_.max_depth) {
      cursor_.Fail(absl::StrCat("groups are nested deeper than ", limits_.max_depth));
      return grammar_.Never();
    }
    SkipSpace(true);
    const ExprId group = Alternatives(depth + 1);
    if (!cursor_.TakeWord(")")) cursor_.Fail("expected \")\"");
    num_quantifiers_ = 0;
    return group;
  }

  ExprId Call() {
    const std::string name = Name();
    if (cursor_.failed()) return grammar_.Never();
    return grammar_.Call(RuleOf(name));
  }

  ExprId Literal() {
    std::vector<ExprId> parts;
    while (cursor_.Peek() != '"' && cursor_.Peek() != kEnd) {
      const char32_t c = Char();
      parts.push_back(grammar_.Chars({{c, c}}));
    }
    if (!cursor_.TakeWord("\"")) cursor_.Fail("the literal has no end");
    return grammar_.Sequence(std::move(parts));
  }

  ExprId Class() {
    const bool negated = cursor_.TakeWord("^");
    CodeSet set;
    while (cursor_.Peek() != ']' && cursor_.Peek() != kEnd) {
      const char32_t first = Char();
      char32_t last = first;
      const size_t begin = cursor_.offset();
      if (cursor_.TakeWord("-") && cursor_.Peek() != ']') {
        last = Char();
      } else {
        cursor_.Return(begin);
      }
      if (first > last) cursor_.Fail("a range whose end is before its beginning");
      set.Add({first, last});
    }
    if (!cursor_.TakeWord("]")) cursor_.Fail("the class has no end");
    return grammar_.Chars(negated ? set.Complement() : set);
  }

  char32_t Char() {
    if (!cursor_.TakeWord("\\")) return cursor_.Take();
    const char32_t c = cursor_.Take();
    switch (c) {
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'x': return cursor_.TakeHex(2);
      case 'u': return cursor_.TakeHex(4);
      case 'U': return cursor_.TakeHex(8);
      case '"':
      case '[':
      case ']':
      case '\\':
      case '-':
      case '^': return c;
      default: cursor_.Fail("this escape is not supported"); return c;
    }
  }

  TextCursor cursor_;
  const GuideLimits& limits_;
  Grammar& grammar_;
  absl::flat_hash_map<std::string, RuleId> rules_;
  std::vector<bool> defined_;  // of each rule
  int num_quantifiers_ = 0;    // after the item before the cursor
};

}  // namespace

absl::StatusOr<RuleId> ReadGbnf(std::string_view text, const GuideLimits& limits,
                                Grammar* grammar) {
  return GbnfReader(text, limits, grammar).Read();
}

}  // namespace quire
