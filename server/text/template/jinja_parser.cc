// Statements of chat templates, by recursive descent over the tokens.
#include "server/text/template/jinja_parser.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/template/jinja_expression_parser.h"
#include "server/text/template/jinja_lexer.h"

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
      statement->line = cursor_.Peek().line;
      if (cursor_.Peek().kind == Token::Kind::kText) {
        statement->name = cursor_.Take().text;
      } else if (cursor_.Peek().kind == Token::Kind::kOutputBegin) {
        cursor_.Take();
        statement->kind = Kind::kOutput;
        ASSIGN_OR_RETURN(statement->expression, ParseExpression(&cursor_));
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

  absl::Status ParseStatement(Statement* out) {
    if (cursor_.Peek().kind != Token::Kind::kName) return cursor_.Fault("a block needs a name");
    const std::string name = cursor_.Take().text;
    if (name == "if") return ParseIf(out);
    if (name == "for") return ParseFor(out);
    if (name == "set") return ParseSet(out);
    if (name == "macro") return ParseMacro(out);
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return cursor_.Fault(absl::StrCat(name, " outside of a loop"));
      out->kind = name == "break" ? Kind::kBreak : Kind::kContinue;
      return EndOfTag();
    }
    if (name == "generation") {  // marks the assistant's text for training
      out->kind = Kind::kBody;
      ASSIGN_OR_RETURN(out->body, ParseBodyUntil("endgeneration"));
      return absl::OkStatus();
    }
    return cursor_.Fault(absl::StrCat("block '", name.substr(0, 40), "' is not supported"));
  }

  absl::Status ParseIf(Statement* out) {
    out->kind = Kind::kIf;
    while (true) {
      ASSIGN_OR_RETURN(ExpressionPtr condition, ParseExpression(&cursor_));
      RETURN_IF_ERROR(EndOfTag());
      ASSIGN_OR_RETURN(Block body, ParseBlock({"elif", "else", "endif"}));
      out->branches.emplace_back(std::move(condition), std::move(body));
      const std::string next = cursor_.Take().text;
      if (next == "elif") continue;
      if (next == "else") {
        ASSIGN_OR_RETURN(out->otherwise, ParseBodyUntil("endif"));
        return absl::OkStatus();
      }
      return EndOfTag();
    }
  }

  // a, b = ... and for a, b in ...: names, optionally in parentheses.
  absl::Status ParseTargets(std::vector<std::string>* out) {
    const bool parenthesis = cursor_.Skip("(");
    do {
      ASSIGN_OR_RETURN(std::string name, cursor_.TakeName());
      if (name == "loop") return cursor_.Fault("'loop' cannot be assigned");
      out->push_back(std::move(name));
    } while (cursor_.Skip(","));
    if (parenthesis && !cursor_.Skip(")")) return cursor_.Fault(") expected");
    return absl::OkStatus();
  }

  absl::Status ParseFor(Statement* out) {
    out->kind = Kind::kFor;
    RETURN_IF_ERROR(ParseTargets(&out->targets));
    if (!cursor_.SkipName("in")) return cursor_.Fault("'in' expected");
    ASSIGN_OR_RETURN(out->expression, ParseWithoutCondition(&cursor_));
    if (cursor_.SkipName("if")) {
      ASSIGN_OR_RETURN(out->condition, ParseExpression(&cursor_));
    }
    if (cursor_.SkipName("recursive")) return cursor_.Fault("a recursive loop is not supported");
    RETURN_IF_ERROR(EndOfTag());
    ++loops_;
    ASSIGN_OR_RETURN(out->body, ParseBlock({"else", "endfor"}));
    --loops_;
    if (cursor_.Take().text == "else") {
      ASSIGN_OR_RETURN(out->otherwise, ParseBodyUntil("endfor"));
      return absl::OkStatus();
    }
    return EndOfTag();
  }

  absl::Status ParseSet(Statement* out) {
    out->kind = Kind::kSet;
    RETURN_IF_ERROR(ParseTargets(&out->targets));
    if (out->targets.size() == 1 && cursor_.Skip(".")) {
      out->kind = Kind::kSetField;
      out->name = out->targets[0];
      ASSIGN_OR_RETURN(out->field, cursor_.TakeName());
    }
    if (cursor_.Skip("=")) {
      ASSIGN_OR_RETURN(out->expression, ParseTuple(&cursor_));
      return EndOfTag();
    }
    if (out->kind != Kind::kSet || out->targets.size() != 1 ||
        cursor_.Peek().kind != Token::Kind::kBlockEnd) {
      return cursor_.Fault("= expected");
    }
    ASSIGN_OR_RETURN(out->body, ParseBodyUntil("endset"));
    return absl::OkStatus();
  }

  absl::Status ParseMacro(Statement* out) {
    out->kind = Kind::kMacro;
    auto macro = std::make_unique<MacroStatement>();
    ASSIGN_OR_RETURN(macro->name, cursor_.TakeName());
    if (!cursor_.Skip("(")) return cursor_.Fault("( expected");
    while (!cursor_.Skip(")")) {
      if (!macro->parameters.empty() && !cursor_.Skip(",")) return cursor_.Fault(", expected");
      ASSIGN_OR_RETURN(std::string name, cursor_.TakeName());
      ExpressionPtr otherwise;
      if (cursor_.Skip("=")) {
        ASSIGN_OR_RETURN(otherwise, ParseExpression(&cursor_));
      }
      macro->parameters.emplace_back(std::move(name), std::move(otherwise));
    }
    const int loops = std::exchange(loops_, 0);
    ASSIGN_OR_RETURN(macro->body, ParseBodyUntil("endmacro"));
    loops_ = loops;
    out->macro = std::move(macro);
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
