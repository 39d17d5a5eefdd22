// Each definition becomes a rule. In rules a token is a literal, an expression, a range or the name
// of a terminal, with what is ignored behind it; within terminals nothing is ignored.
#include "engine/grammar/readers/lark_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/readers/lark_left.h"
#include "engine/grammar/readers/lark_syntax.h"
#include "engine/grammar/readers/lark_terminals.h"
#include "engine/grammar/readers/regex_reader.h"
#include "engine/grammar/readers/text_cursor.h"

namespace quire {
namespace {

using Kind = LarkExpr::Kind;

absl::Status Wrong(std::string_view text, size_t at, const std::string& reason) {
  return absl::InvalidArgumentError(absl::StrCat("lark: ", LineAndColumn(text, at), ": ", reason));
}

// Terminals of the module common, each a rule once it is met. Names resolve within the module.
class ModuleTerminals {
 public:
  ModuleTerminals(const GuideLimits& limits, Grammar* grammar)
      : limits_(limits), grammar_(*grammar) {}

  // NOT_FOUND if the module has none of the name.
  absl::StatusOr<RuleId> RuleOf(const std::string& name) {
    if (const auto at = rules_.find(name); at != rules_.end()) return at->second;
    const std::string body(LarkTerminalBody(name));
    if (body.empty()) return absl::NotFoundError(name);
    const RuleId rule = rules_[name] = grammar_.AddRule(absl::StrCat("terminal common.", name));
    ASSIGN_OR_RETURN(const LarkText parsed, ParseLark(absl::StrCat(name, ": ", body), limits_));
    ASSIGN_OR_RETURN(const ExprId expr, Build(parsed.definitions[0].body));
    grammar_.SetRule(rule, expr);
    return rule;
  }

 private:
  absl::StatusOr<ExprId> Build(const LarkExpr& expr) {
    if (expr.kind == Kind::kRegex) {
      return ReadRegex(expr.text, {.what = "lark", .anchors = false}, &grammar_);
    }
    if (expr.kind == Kind::kName) {
      ASSIGN_OR_RETURN(const RuleId rule, RuleOf(expr.text));
      return grammar_.Call(rule);
    }
    std::vector<ExprId> parts;
    for (const LarkExpr& part : expr.parts) {
      ASSIGN_OR_RETURN(const ExprId built, Build(part));
      parts.push_back(built);
    }
    if (expr.kind == Kind::kRepeat) return grammar_.Repeat(parts[0], expr.min, expr.max);
    return expr.kind == Kind::kChoice ? grammar_.Choice(std::move(parts))
                                      : grammar_.Sequence(std::move(parts));
  }

  const GuideLimits& limits_;
  Grammar& grammar_;
  absl::flat_hash_map<std::string, RuleId> rules_;
};

class LarkReader {
 public:
  LarkReader(std::string_view text, const GuideLimits& limits, Grammar* grammar)
      : text_(text), limits_(limits), grammar_(*grammar), common_(limits, grammar) {}

  absl::StatusOr<RuleId> Read() {
    ASSIGN_OR_RETURN(LarkText parsed, ParseLark(text_, limits_));
    RETURN_IF_ERROR(AddNames(parsed));
    if (!rules_.contains("start")) {
      return absl::InvalidArgumentError("lark: there is no rule start");
    }
    has_ignored_ = !parsed.ignored.empty();
    if (has_ignored_) RETURN_IF_ERROR(AddIgnored(parsed.ignored));
    for (LarkDefinition& definition : parsed.definitions) {
      RETURN_IF_ERROR(AddBody(std::move(definition)));
    }
    const ExprId start = grammar_.Call(rules_["start"]);
    return has_ignored_ ? grammar_.AddRule("text", grammar_.Sequence({Ignored(), start}))
                        : rules_["start"];
  }

 private:
  absl::Status AddNames(const LarkText& parsed) {
    size_t line = 1, counted = 0;
    for (const LarkDefinition& each : parsed.definitions) {
      line += std::count(text_.begin() + counted, text_.begin() + each.at, '\n');
      counted = each.at;
      const char* const kind = IsLarkTerminal(each.name) ? "terminal " : "rule ";
      const RuleId rule = grammar_.AddRule(absl::StrCat(kind, each.name, " of line ", line));
      RETURN_IF_ERROR(AddName(each.name, each.at, rule));
    }
    for (const LarkImport& each : parsed.imports) {
      const absl::StatusOr<RuleId> rule = common_.RuleOf(each.name);
      if (absl::IsNotFound(rule.status())) {
        return Wrong(text_, each.at, absl::StrCat("common has no terminal ", each.name));
      }
      RETURN_IF_ERROR(rule.status());
      RETURN_IF_ERROR(AddName(each.alias, each.at, *rule));
    }
    return absl::OkStatus();
  }

  absl::Status AddName(const std::string& name, size_t at, RuleId rule) {
    if (rules_.try_emplace(name, rule).second) return absl::OkStatus();
    return Wrong(text_, at, absl::StrCat(name, " is defined twice"));
  }

  absl::Status AddIgnored(const std::vector<LarkExpr>& ignored) {
    std::vector<ExprId> parts;
    for (const LarkExpr& each : ignored) {
      ASSIGN_OR_RETURN(const ExprId part, Build(each, /*in_terminal=*/true));
      parts.push_back(part);
    }
    ignored_ = grammar_.AddRule(
        "ignored", grammar_.Repeat(grammar_.Choice(std::move(parts)), 0, Grammar::kUnbounded));
    return absl::OkStatus();
  }

  ExprId Ignored() { return grammar_.Call(ignored_); }

  absl::Status AddBody(LarkDefinition definition) {
    const bool terminal = IsLarkTerminal(definition.name);
    const LarkExpr body = terminal
                              ? std::move(definition.body)
                              : WithoutLeftRecursion(std::move(definition.body), definition.name);
    ASSIGN_OR_RETURN(const ExprId expr, Build(body, terminal));
    grammar_.SetRule(rules_[definition.name], expr);
    return absl::OkStatus();
  }

  absl::StatusOr<ExprId> Build(const LarkExpr& expr, bool in_terminal) {
    switch (expr.kind) {
      case Kind::kSequence:
      case Kind::kChoice:
      case Kind::kRepeat: return Combined(expr, in_terminal);
      case Kind::kName: break;
      default: {
        ASSIGN_OR_RETURN(const ExprId token, Token(expr));
        return in_terminal ? token : Followed(token);
      }
    }
    const auto rule = rules_.find(expr.text);
    if (rule == rules_.end()) {
      return Wrong(text_, expr.at, absl::StrCat(expr.text, " is not defined"));
    }
    const bool terminal = IsLarkTerminal(expr.text);
    if (in_terminal && !terminal) {
      return Wrong(text_, expr.at,
                   absl::StrCat("the rule ", expr.text, " cannot be part of a terminal"));
    }
    const ExprId call = grammar_.Call(rule->second);
    return terminal && !in_terminal ? Followed(call) : call;
  }

  absl::StatusOr<ExprId> Combined(const LarkExpr& expr, bool in_terminal) {
    std::vector<ExprId> parts;
    for (const LarkExpr& part : expr.parts) {
      ASSIGN_OR_RETURN(const ExprId built, Build(part, in_terminal));
      parts.push_back(built);
    }
    if (expr.kind == Kind::kRepeat) return grammar_.Repeat(parts[0], expr.min, expr.max);
    return expr.kind == Kind::kChoice ? grammar_.Choice(std::move(parts))
                                      : grammar_.Sequence(std::move(parts));
  }

  ExprId Followed(ExprId token) {
    return has_ignored_ ? grammar_.Sequence({token, Ignored()}) : token;
  }

  absl::StatusOr<ExprId> Token(const LarkExpr& expr) {
    if (expr.kind == Kind::kRange) return grammar_.Chars({{expr.chars[0], expr.chars[1]}});
    if (expr.kind == Kind::kRegex) {
      absl::StatusOr<ExprId> read = ReadRegex(expr.text,
                                              {.what = "regular expression",
                                               .max_depth = limits_.max_depth,
                                               .anchors = false,
                                               .dot_all = expr.dot_all,
                                               .ignore_case = expr.ignore_case},
                                              &grammar_);
      if (read.ok()) return read;
      return Wrong(text_, expr.at, std::string(read.status().message()));
    }
    std::vector<ExprId> parts;
    for (const char32_t c : expr.chars) {
      if (expr.ignore_case && c >= 0x80) {
        return Wrong(text_, expr.at, "the flag i is supported for ASCII only");
      }
      CodeSet set{{c, c}};
      const char32_t lower = c | 0x20;
      if (expr.ignore_case && lower >= 'a' && lower <= 'z') {
        set.Add({lower, lower});
        set.Add({lower - 0x20, lower - 0x20});
      }
      parts.push_back(grammar_.Chars(std::move(set)));
    }
    return grammar_.Sequence(std::move(parts));
  }

  const std::string_view text_;
  const GuideLimits& limits_;
  Grammar& grammar_;
  ModuleTerminals common_;
  absl::flat_hash_map<std::string, RuleId> rules_;  // of names in the text
  bool has_ignored_ = false;
  RuleId ignored_ = 0;
};

}  // namespace

absl::StatusOr<RuleId> ReadLark(std::string_view text, const GuideLimits& limits,
                                Grammar* grammar) {
  return LarkReader(text, limits, grammar).Read();
}

}  // namespace quire
