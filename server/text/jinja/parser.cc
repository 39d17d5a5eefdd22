// Statements of chat templates, by recursive descent over the tokens.
#include "server/text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/expression_parser.h"
#include "server/text/jinja/lexer.h"
#include "server/text/jinja/values/fault.h"

namespace quire::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : cursor_(std::move(tokens)) {}

  absl::StatusOr<Block> Run() {
    ASSIGN_OR_RETURN(Block block, ParseBlock({}));
    return block;
  }

 private:
  using Kind = Statement::Kind;
  using Names = std::initializer_list<std::string_view>;

  // Parses statements up to a block that starts with one of `ends`, or to the end of the template
  // if `ends` is empty. Leaves that name as the next token.
  absl::StatusOr<Block> ParseBlock(Names ends) {
    if (++depth_ > kMaxDepth) return cursor_.Fault(absl::StrCat("nested deeper than ", kMaxDepth));
    Block block;
    while (cursor_.Peek().kind != Token::Kind::kEnd) {
      auto statement = std::make_unique<Statement>();
      statement->place = {cursor_.Peek().line, cursor_.Peek().column};
      if (cursor_.Peek().kind == Token::Kind::kText) {
        statement->text = cursor_.Take().text;
      } else if (cursor_.Peek().kind == Token::Kind::kOutputBegin) {
        cursor_.Take();
        statement->kind = Kind::kOutput;
        ASSIGN_OR_RETURN(statement->expression, ParseTuple(&cursor_));
        RETURN_IF_ERROR(cursor_.Expect(Token::Kind::kOutputEnd));
      } else {
        cursor_.Take();
        if (std::ranges::find(ends, cursor_.Peek().text) != ends.end()) {
          --depth_;
          return block;
        }
        RETURN_IF_ERROR(ParseStatement(statement.get()));
      }
      block.push_back(std::move(statement));
    }
    --depth_;
    if (ends.size() > 0) return cursor_.Fault("block without " + std::string(*(ends.end() - 1)));
    return block;
  }

  absl::Status EndOfTag() { return cursor_.Expect(Token::Kind::kBlockEnd); }
  // The body of a block and the closing tag.
  absl::StatusOr<Block> ParseBodyUntil(std::string_view end) {
    RETURN_IF_ERROR(EndOfTag());
    ASSIGN_OR_RETURN(Block body, ParseBlock({end}));
    cursor_.Take();
    RETURN_IF_ERROR(EndOfTag());
    return body;
  }

  // A body with variables of its own, in which an unknown filter is an error wherever it stands.
  absl::StatusOr<Block> ParseInnerUntil(std::string_view end) {
    const bool soft = cursor_.SetSoft(false);
    ASSIGN_OR_RETURN(Block body, ParseBodyUntil(end));
    cursor_.SetSoft(soft);
    return body;
  }

  absl::Status ParseStatement(Statement* out) {
    if (cursor_.Peek().kind != Token::Kind::kName) return cursor_.Fault("a block needs a name");
    const std::string name = cursor_.Peek().text;
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return cursor_.Fault(absl::StrCat(name, " outside of a loop"));
      cursor_.Take();
      out->kind = name == "break" ? Kind::kBreak : Kind::kContinue;
      return EndOfTag();
    }
    static constexpr std::pair<std::string_view, absl::Status (Parser::*)(Statement*)> kBlocks[] = {
        {"if", &Parser::ParseIf},     {"for", &Parser::ParseFor},
        {"set", &Parser::ParseSet},   {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCall}, {"filter", &Parser::ParseFilter},
        {"with", &Parser::ParseWith}, {"generation", &Parser::ParseGeneration},
    };
    for (const auto& [known, parse] : kBlocks) {
      if (name != known) continue;
      cursor_.Take();
      return (this->*parse)(out);
    }
    return cursor_.Fault(
        absl::StrCat("block '", MessagePart(Shortened(name)), "' is not supported"));
  }

  absl::Status ParseIf(Statement* out) {
    out->kind = Kind::kIf;
    const bool soft = cursor_.SetSoft(true);
    while (true) {
      ASSIGN_OR_RETURN(ExpressionPtr condition, ParseTupleWithoutCondition(&cursor_));
      RETURN_IF_ERROR(EndOfTag());
      ASSIGN_OR_RETURN(Block body, ParseBlock({"elif", "else", "endif"}));
      out->branches.emplace_back(std::move(condition), std::move(body));
      const std::string next = cursor_.Take().text;
      if (next == "elif") continue;
      if (next == "else") {
        ASSIGN_OR_RETURN(out->otherwise, ParseBodyUntil("endif"));
      } else {
        RETURN_IF_ERROR(EndOfTag());
      }
      cursor_.SetSoft(soft);
      return absl::OkStatus();
    }
  }

  // A name, name.field where `fields` may be set, or several in parentheses.
  absl::StatusOr<Target> ParseTarget(bool fields) {
    Target target;
    if (cursor_.Skip("(")) {
      ASSIGN_OR_RETURN(target, ParseTargets(fields));
      if (!cursor_.Skip(")")) return cursor_.Fault(") expected");
      return target;
    }
    ASSIGN_OR_RETURN(target.name, cursor_.TakeName());
    for (const char* word : {"true", "false", "none", "True", "False", "None"}) {
      if (target.name == word)
        return cursor_.Fault(absl::StrCat("'", word, "' cannot be assigned"));
    }
    if (fields && cursor_.Skip(".")) {
      ASSIGN_OR_RETURN(target.field, cursor_.TakeName());
    }
    return target;
  }

  // a, (b, c) = ... and for a, (b, c) in ...
  absl::StatusOr<Target> ParseTargets(bool fields) {
    if (++depth_ > kMaxDepth) return cursor_.Fault(absl::StrCat("nested deeper than ", kMaxDepth));
    ASSIGN_OR_RETURN(Target first, ParseTarget(fields));
    if (cursor_.IsOperator(",")) {
      Target several;
      several.parts.push_back(std::move(first));
      while (cursor_.Skip(",")) {
        if (cursor_.Peek().kind != Token::Kind::kName && !cursor_.IsOperator("(")) break;
        if (cursor_.IsName("in")) break;
        ASSIGN_OR_RETURN(Target next, ParseTarget(fields));
        several.parts.push_back(std::move(next));
      }
      first = std::move(several);
    }
    --depth_;
    return first;
  }

  absl::Status ParseFor(Statement* out) {
    out->kind = Kind::kFor;
    const bool soft = cursor_.SetSoft(false);
    ASSIGN_OR_RETURN(out->target, ParseTargets(/*fields=*/false));
    if (HasName(out->target, "loop")) return cursor_.Fault("'loop' cannot be assigned here");
    if (!cursor_.SkipName("in")) return cursor_.Fault("'in' expected");
    ASSIGN_OR_RETURN(out->expression, ParseTupleWithoutCondition(&cursor_));
    if (cursor_.SkipName("if")) {
      ASSIGN_OR_RETURN(out->condition, ParseExpression(&cursor_));
    }
    out->recursive = cursor_.SkipName("recursive");
    RETURN_IF_ERROR(EndOfTag());
    ++loops_;
    ASSIGN_OR_RETURN(out->body, ParseBlock({"else", "endfor"}));
    --loops_;
    if (cursor_.Take().text == "else") {
      ASSIGN_OR_RETURN(out->otherwise, ParseBodyUntil("endfor"));
    } else {
      RETURN_IF_ERROR(EndOfTag());
    }
    cursor_.SetSoft(soft);
    return absl::OkStatus();
  }

  static bool HasName(const Target& target, std::string_view name) {
    return target.name == name || std::ranges::any_of(target.parts, [name](const Target& part) {
             return HasName(part, name);
           });
  }

  absl::Status ParseSet(Statement* out) {
    out->kind = Kind::kSet;
    ASSIGN_OR_RETURN(out->target, ParseTargets(/*fields=*/true));
    if (cursor_.Skip("=")) {
      ASSIGN_OR_RETURN(out->expression, ParseTuple(&cursor_));
      return EndOfTag();
    }
    if (cursor_.IsOperator("|")) {
      ASSIGN_OR_RETURN(out->filter, ParseFilters(&cursor_));
    }
    if (!out->target.parts.empty() || cursor_.Peek().kind != Token::Kind::kBlockEnd) {
      return cursor_.Fault("= expected");
    }
    ASSIGN_OR_RETURN(out->body, ParseInnerUntil("endset"));
    return absl::OkStatus();
  }

  absl::Status ParseParameters(MacroStatement* macro) {
    if (!cursor_.Skip("(")) return cursor_.Fault("( expected");
    while (!cursor_.Skip(")")) {
      if (!macro->parameters.empty() && !cursor_.Skip(",")) return cursor_.Fault(", expected");
      ASSIGN_OR_RETURN(std::string name, cursor_.TakeName());
      ExpressionPtr otherwise;
      if (cursor_.Skip("=")) {
        ASSIGN_OR_RETURN(otherwise, ParseExpression(&cursor_));
      } else if (!macro->parameters.empty() && macro->parameters.back().second != nullptr) {
        return cursor_.Fault("a parameter without a default after one with a default");
      }
      macro->parameters.emplace_back(std::move(name), std::move(otherwise));
    }
    return absl::OkStatus();
  }

  absl::Status ParseMacroBody(std::string_view end, MacroStatement* macro) {
    const int loops = std::exchange(loops_, 0);
    const size_t begin = cursor_.position();
    ASSIGN_OR_RETURN(macro->body, ParseInnerUntil(end));
    loops_ = loops;
    macro->takes_varargs = cursor_.SaysSince(begin, "varargs");
    macro->takes_kwargs = cursor_.SaysSince(begin, "kwargs");
    macro->takes_caller = cursor_.SaysSince(begin, "caller");
    return absl::OkStatus();
  }

  absl::Status ParseMacro(Statement* out) {
    out->kind = Kind::kMacro;
    auto macro = std::make_unique<MacroStatement>();
    ASSIGN_OR_RETURN(macro->name, cursor_.TakeName());
    RETURN_IF_ERROR(ParseParameters(macro.get()));
    RETURN_IF_ERROR(ParseMacroBody("endmacro", macro.get()));
    out->macro = std::move(macro);
    return absl::OkStatus();
  }

  // {% call(parameters) macro(arguments) %} body {% endcall %}
  absl::Status ParseCall(Statement* out) {
    out->kind = Kind::kCall;
    auto macro = std::make_unique<MacroStatement>();
    macro->name = "caller";
    if (cursor_.IsOperator("(")) RETURN_IF_ERROR(ParseParameters(macro.get()));
    ASSIGN_OR_RETURN(out->expression, ParseExpression(&cursor_));
    if (out->expression->kind != Expression::Kind::kCall)
      return cursor_.Fault("a call is expected");
    RETURN_IF_ERROR(ParseMacroBody("endcall", macro.get()));
    out->macro = std::move(macro);
    return absl::OkStatus();
  }

  absl::Status ParseFilter(Statement* out) {
    out->kind = Kind::kFilter;
    ASSIGN_OR_RETURN(out->filter, ParseFilters(&cursor_));
    ASSIGN_OR_RETURN(out->body, ParseInnerUntil("endfilter"));
    return absl::OkStatus();
  }

  absl::Status ParseWith(Statement* out) {
    out->kind = Kind::kWith;
    while (cursor_.Peek().kind != Token::Kind::kBlockEnd) {
      if (!out->assignments.empty() && !cursor_.Skip(",")) return cursor_.Fault(", expected");
      ASSIGN_OR_RETURN(Target target, ParseTarget(/*fields=*/false));
      if (!cursor_.Skip("=")) return cursor_.Fault("= expected");
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression(&cursor_));
      out->assignments.emplace_back(std::move(target), std::move(value));
    }
    ASSIGN_OR_RETURN(out->body, ParseInnerUntil("endwith"));
    return absl::OkStatus();
  }

  // Marks the assistant's text for training.
  absl::Status ParseGeneration(Statement* out) {
    out->kind = Kind::kBody;
    const int loops = std::exchange(loops_, 0);
    ASSIGN_OR_RETURN(out->body, ParseInnerUntil("endgeneration"));
    loops_ = loops;
    return absl::OkStatus();
  }

  Cursor cursor_;
  int depth_ = 0;
  int loops_ = 0;  // open around the current statement
};

}  // namespace

absl::StatusOr<Block> Parse(const std::string& source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace quire::jinja
