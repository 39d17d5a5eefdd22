// Parses expressions by recursive descent, one function per level of precedence.
#include "server/text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/filters.h"
#include "server/text/jinja/value_tests.h"
#include "server/text/jinja/values/fault.h"

namespace quire::jinja {

bool Cursor::IsOperator(std::string_view op) const {
  return Peek().kind == Token::Kind::kOperator && Peek().text == op;
}
bool Cursor::IsName(std::string_view name) const {
  return Peek().kind == Token::Kind::kName && Peek().text == name;
}
bool Cursor::Skip(std::string_view op) {
  if (!IsOperator(op)) return false;
  ++at_;
  return true;
}
bool Cursor::SkipName(std::string_view name) {
  if (!IsName(name)) return false;
  ++at_;
  return true;
}
absl::Status Cursor::Fault(const std::string& reason) const {
  return absl::InvalidArgumentError(
      absl::StrCat("line ", Peek().line, ", column ", Peek().column, ": ", reason));
}
bool Cursor::SaysSince(size_t begin, std::string_view name) const {
  return std::any_of(tokens_.begin() + static_cast<std::ptrdiff_t>(begin),
                     tokens_.begin() + static_cast<std::ptrdiff_t>(at_),
                     [name](const Token& token) {
                       return token.kind == Token::Kind::kName && token.text == name;
                     });
}
absl::Status Cursor::Expect(Token::Kind kind) {
  if (Peek().kind != kind) {
    return Fault(absl::StrCat("'", MessagePart(Shortened(Peek().text)), "' is not expected here"));
  }
  Take();
  return absl::OkStatus();
}
absl::StatusOr<std::string> Cursor::TakeName() {
  if (Peek().kind != Token::Kind::kName) return Fault("a name is expected");
  return Take().text;
}

namespace {

using Kind = Expression::Kind;
using Parsed = absl::StatusOr<ExpressionPtr>;
using Draft = std::unique_ptr<Expression>;

class ExpressionParser {
 public:
  explicit ExpressionParser(Cursor* cursor) : cursor_(*cursor) {}

  // The result of a whole expression: refused if it surely reaches an unknown filter or test.
  Parsed Known(Parsed parsed) const {
    return parsed.ok() && !unknown_.ok() ? Parsed(unknown_) : std::move(parsed);
  }

  Parsed Condition() {
    if (++nesting_ > kMaxDepth) return TooDeep();
    const absl::Status unknown_before = unknown_;
    ASSIGN_OR_RETURN(ExpressionPtr value, Or());
    while (cursor_.SkipName("if")) {
      unknown_ = unknown_before;  // a branch may not be taken
      Draft choice = Make(Kind::kIf);
      choice->operands.push_back(std::move(value));
      ASSIGN_OR_RETURN(ExpressionPtr condition, Or());
      choice->operands.push_back(std::move(condition));
      ExpressionPtr otherwise;
      if (cursor_.SkipName("else")) {
        ASSIGN_OR_RETURN(otherwise, Condition());
      }
      unknown_ = unknown_before;
      choice->operands.push_back(std::move(otherwise));
      ASSIGN_OR_RETURN(value, Finish(std::move(choice)));
    }
    --nesting_;
    return value;
  }

  Parsed Or() {
    return Chain("or", /*is_name=*/true, [this] { return And(); });
  }

  Parsed Filter(ExpressionPtr value) {
    Draft filter = Make(Kind::kFilter);
    ASSIGN_OR_RETURN(filter->name, DottedName());
    if (!IsFilter(filter->name)) NoteUnknown("filter", *filter);
    filter->operands.push_back(std::move(value));
    if (cursor_.Skip("(")) RETURN_IF_ERROR(CallArguments(filter.get()));
    return Finish(std::move(filter));
  }

 private:
  absl::Status TooDeep() const {
    return cursor_.Fault(absl::StrCat("expression nested deeper than ", kMaxDepth));
  }
  Draft Make(Kind kind, std::string name = "") const {
    auto draft = std::make_unique<Expression>();
    draft->kind = kind;
    draft->place = {cursor_.Peek().line, cursor_.Peek().column};
    draft->name = std::move(name);
    return draft;
  }
  // Completes a node: computes its depth from its parts.
  Parsed Finish(Draft draft) const {
    const auto deepen = [&draft](const ExpressionPtr& part) {
      if (part != nullptr) draft->depth = std::max(draft->depth, part->depth + 1);
    };
    for (const ExpressionPtr& part : draft->operands) deepen(part);
    for (const auto& keyword : draft->keywords) deepen(keyword.second);
    deepen(draft->more_arguments);
    deepen(draft->more_keywords);
    if (draft->depth > kMaxDepth) return TooDeep();
    return ExpressionPtr(std::move(draft));
  }

  template <class Part>
  Parsed Chain(std::string_view op, bool is_name, const Part& part) {
    ASSIGN_OR_RETURN(ExpressionPtr first, part());
    Draft chain;
    while (is_name ? cursor_.SkipName(op) : cursor_.Skip(op)) {
      if (chain == nullptr) {
        chain = Make(Kind::kChain, std::string(op));
        chain->operands.push_back(std::move(first));
      }
      ASSIGN_OR_RETURN(ExpressionPtr next, part());
      chain->operands.push_back(std::move(next));
    }
    return chain == nullptr ? Parsed(std::move(first)) : Finish(std::move(chain));
  }

  Parsed And() {
    return Chain("and", /*is_name=*/true, [this] { return Not(); });
  }

  Parsed Not() {
    if (!cursor_.SkipName("not")) return Comparison();
    if (++nesting_ > kMaxDepth) return TooDeep();
    Draft negation = Make(Kind::kUnary, "not");
    ASSIGN_OR_RETURN(ExpressionPtr operand, Not());
    negation->operands.push_back(std::move(operand));
    --nesting_;
    return Finish(std::move(negation));
  }

  std::string TakeComparison() {
    for (const char* op : {"==", "!=", "<", "<=", ">", ">="}) {
      if (cursor_.Skip(op)) return op;
    }
    if (cursor_.SkipName("in")) return "in";
    if (cursor_.IsName("not") && cursor_.Next().kind == Token::Kind::kName &&
        cursor_.Next().text == "in") {
      cursor_.Take();
      cursor_.Take();
      return "not in";
    }
    return "";
  }

  Parsed Comparison() {
    ASSIGN_OR_RETURN(ExpressionPtr first, Sum());
    Draft comparison;
    for (std::string op = TakeComparison(); !op.empty(); op = TakeComparison()) {
      if (comparison == nullptr) {
        comparison = Make(Kind::kCompare);
        comparison->operands.push_back(std::move(first));
      }
      comparison->operators.push_back(std::move(op));
      ASSIGN_OR_RETURN(ExpressionPtr next, Sum());
      comparison->operands.push_back(std::move(next));
    }
    return comparison == nullptr ? Parsed(std::move(first)) : Finish(std::move(comparison));
  }

  Parsed Sum() {
    ASSIGN_OR_RETURN(ExpressionPtr left, Plus());
    while (cursor_.Skip("-")) {
      ASSIGN_OR_RETURN(ExpressionPtr right, Concatenation());
      ASSIGN_OR_RETURN(left, Binary("-", std::move(left), std::move(right)));
      if (cursor_.IsOperator("+")) {
        ASSIGN_OR_RETURN(left, PlusAfter(std::move(left)));
      }
    }
    return left;
  }
  Parsed Plus() {
    return Chain("+", /*is_name=*/false, [this] { return Concatenation(); });
  }
  Parsed PlusAfter(ExpressionPtr first) {
    bool taken = false;
    return Chain("+", /*is_name=*/false, [&]() -> Parsed {
      if (taken) return Concatenation();
      taken = true;
      return std::move(first);
    });
  }
  Parsed Concatenation() {
    return Chain("~", /*is_name=*/false, [this] { return Product(); });
  }

  Parsed Binary(const std::string& op, ExpressionPtr left, ExpressionPtr right) {
    Draft binary = Make(Kind::kBinary, op);
    binary->operands.push_back(std::move(left));
    binary->operands.push_back(std::move(right));
    return Finish(std::move(binary));
  }

  Parsed Product() {
    ASSIGN_OR_RETURN(ExpressionPtr left, Power());
    while (true) {
      std::string op;
      for (const char* one : {"*", "/", "//", "%"}) {
        if (cursor_.Skip(one)) op = one;
        if (!op.empty()) break;
      }
      if (op.empty()) return left;
      ASSIGN_OR_RETURN(ExpressionPtr right, Power());
      ASSIGN_OR_RETURN(left, Binary(op, std::move(left), std::move(right)));
    }
  }

  Parsed Power() {
    ASSIGN_OR_RETURN(ExpressionPtr left, Unary(/*with_filter=*/true));
    while (cursor_.Skip("**")) {
      ASSIGN_OR_RETURN(ExpressionPtr right, Unary(/*with_filter=*/true));
      ASSIGN_OR_RETURN(left, Binary("**", std::move(left), std::move(right)));
    }
    return left;
  }

  Parsed Unary(bool with_filter) {
    ExpressionPtr value;
    if (cursor_.IsOperator("-") || cursor_.IsOperator("+")) {
      if (++nesting_ > kMaxDepth) return TooDeep();
      Draft sign = Make(Kind::kUnary, cursor_.Take().text);
      ASSIGN_OR_RETURN(ExpressionPtr operand, Unary(/*with_filter=*/false));
      sign->operands.push_back(std::move(operand));
      ASSIGN_OR_RETURN(value, Finish(std::move(sign)));
      --nesting_;
    } else {
      ASSIGN_OR_RETURN(value, Primary());
      ASSIGN_OR_RETURN(value, Postfix(std::move(value)));
    }
    return with_filter ? FiltersAndTests(std::move(value)) : Parsed(std::move(value));
  }

  Parsed Primary() {
    const Token& token = cursor_.Peek();
    switch (token.kind) {
      case Token::Kind::kName: return Name();
      case Token::Kind::kString: {
        std::string text;
        while (cursor_.Peek().kind == Token::Kind::kString) text += cursor_.Take().text;
        return Constant(Value::Of(std::move(text)));
      }
      case Token::Kind::kInteger: {
        int64_t number = 0;
        const char* const end = token.text.data() + token.text.size();
        const auto read = std::from_chars(token.text.data(), end, number);
        if (read.ec != std::errc() || read.ptr != end) return cursor_.Fault("integer is too large");
        cursor_.Take();
        return Constant(Value::Of(number));
      }
      case Token::Kind::kFloat:
        return Constant(Value::Of(std::strtod(cursor_.Take().text.c_str(), nullptr)));
      default: break;
    }
    if (cursor_.Skip("(")) return Parenthesis();
    if (cursor_.Skip("[")) return ListOf(Kind::kList, "]");
    if (cursor_.Skip("{")) return DictOf();
    return cursor_.Fault(
        absl::StrCat("'", MessagePart(Shortened(token.text)), "' is not expected here"));
  }

  Parsed Constant(Value value) {
    Draft constant = Make(Kind::kConstant);
    constant->value = std::move(value);
    return Finish(std::move(constant));
  }

  Parsed Name() {
    const std::string name = cursor_.Take().text;
    if (name == "true" || name == "True") return Constant(Value::Of(true));
    if (name == "false" || name == "False") return Constant(Value::Of(false));
    if (name == "none" || name == "None") return Constant(Value::MakeNone());
    return Finish(Make(Kind::kVariable, name));
  }

  Parsed Parenthesis() {
    if (cursor_.Skip(")")) return Finish(Make(Kind::kTuple));
    ASSIGN_OR_RETURN(ExpressionPtr first, Condition());
    if (cursor_.Skip(")")) return first;
    if (!cursor_.Skip(",")) return cursor_.Fault(") expected");
    return ListOf(Kind::kTuple, ")", std::move(first));
  }

  Parsed ListOf(Kind kind, std::string_view end, ExpressionPtr first = nullptr) {
    Draft list = Make(kind);
    if (first != nullptr) list->operands.push_back(std::move(first));
    while (!cursor_.Skip(end)) {
      ASSIGN_OR_RETURN(ExpressionPtr item, Condition());
      list->operands.push_back(std::move(item));
      if (!cursor_.Skip(",") && !cursor_.IsOperator(end)) return cursor_.Fault(", expected");
    }
    return Finish(std::move(list));
  }

  Parsed DictOf() {
    Draft dict = Make(Kind::kDict);
    while (!cursor_.Skip("}")) {
      ASSIGN_OR_RETURN(ExpressionPtr key, Condition());
      if (!cursor_.Skip(":")) return cursor_.Fault(": expected");
      ASSIGN_OR_RETURN(ExpressionPtr value, Condition());
      dict->operands.push_back(std::move(key));
      dict->operands.push_back(std::move(value));
      if (!cursor_.Skip(",") && !cursor_.IsOperator("}")) return cursor_.Fault(", expected");
    }
    return Finish(std::move(dict));
  }

  Parsed Postfix(ExpressionPtr value) {
    while (true) {
      if (cursor_.Skip(".")) {
        ASSIGN_OR_RETURN(value, Field(std::move(value)));
      } else if (cursor_.Skip("[")) {
        ASSIGN_OR_RETURN(value, Subscript(std::move(value)));
      } else if (cursor_.IsOperator("(")) {
        ASSIGN_OR_RETURN(value, Call(std::move(value)));
      } else {
        return value;
      }
    }
  }

  Parsed Call(ExpressionPtr callee) {
    Draft call = Make(Kind::kCall);
    cursor_.Take();
    call->operands.push_back(std::move(callee));
    RETURN_IF_ERROR(CallArguments(call.get()));
    return Finish(std::move(call));
  }

  Parsed Field(ExpressionPtr object) {
    if (cursor_.Peek().kind == Token::Kind::kInteger) {
      Draft item = Make(Kind::kItem);
      item->operands.push_back(std::move(object));
      ASSIGN_OR_RETURN(ExpressionPtr index, Primary());
      item->operands.push_back(std::move(index));
      return Finish(std::move(item));
    }
    Draft field = Make(Kind::kAttribute);
    ASSIGN_OR_RETURN(field->name, cursor_.TakeName());
    field->operands.push_back(std::move(object));
    return Finish(std::move(field));
  }

  Parsed Subscript(ExpressionPtr object) {
    ExpressionPtr bounds[3];
    int colons = 0;
    while (!cursor_.Skip("]")) {
      if (cursor_.Skip(":")) {
        if (++colons > 2) return cursor_.Fault("] expected");
        continue;
      }
      if (bounds[colons] != nullptr) return cursor_.Fault("] expected");
      ASSIGN_OR_RETURN(bounds[colons], Condition());
    }
    if (colons == 0 && bounds[0] == nullptr) return cursor_.Fault("an index is expected");
    Draft item = Make(colons == 0 ? Kind::kItem : Kind::kSlice);
    item->operands.push_back(std::move(object));
    for (int i = 0; i < (colons == 0 ? 1 : 3); ++i) item->operands.push_back(std::move(bounds[i]));
    return Finish(std::move(item));
  }

  // Reads after the opening parenthesis, up to and including the closing one.
  absl::Status CallArguments(Expression* call) {
    bool first = true;
    while (!cursor_.Skip(")")) {
      if (!first && !cursor_.Skip(",")) return cursor_.Fault(", expected");
      if (!first && cursor_.Skip(")")) break;
      first = false;
      if (cursor_.IsOperator("*") || cursor_.IsOperator("**")) {
        ExpressionPtr& more =
            cursor_.Take().text == "*" ? call->more_arguments : call->more_keywords;
        if (more != nullptr) return cursor_.Fault("a second * or ** in a call");
        ASSIGN_OR_RETURN(more, Condition());
        continue;
      }
      const bool named = cursor_.Peek().kind == Token::Kind::kName &&
                         cursor_.Next().kind == Token::Kind::kOperator &&
                         cursor_.Next().text == "=";
      std::string name;
      if (named) {
        name = cursor_.Take().text;
        cursor_.Take();
      } else if (!call->keywords.empty()) {
        return cursor_.Fault("an argument without a name after one with a name");
      }
      ASSIGN_OR_RETURN(ExpressionPtr value, Condition());
      if (named) {
        call->keywords.emplace_back(std::move(name), std::move(value));
      } else {
        call->operands.push_back(std::move(value));
      }
    }
    return absl::OkStatus();
  }

  Parsed FiltersAndTests(ExpressionPtr value) {
    while (true) {
      if (cursor_.Skip("|")) {
        ASSIGN_OR_RETURN(value, Filter(std::move(value)));
      } else if (cursor_.SkipName("is")) {
        ASSIGN_OR_RETURN(value, Test(std::move(value)));
      } else if (cursor_.IsOperator("(")) {
        ASSIGN_OR_RETURN(value, Call(std::move(value)));
      } else {
        return value;
      }
    }
  }

  void NoteUnknown(const char* kind, const Expression& e) {
    if (cursor_.soft() || !unknown_.ok()) return;
    unknown_ = absl::InvalidArgumentError(
        absl::StrCat("line ", e.place.line, ", column ", e.place.column, ": ", kind, " '",
                     MessagePart(Shortened(e.name)), "' is not supported"));
  }

  absl::StatusOr<std::string> DottedName() {
    ASSIGN_OR_RETURN(std::string name, cursor_.TakeName());
    while (cursor_.Skip(".")) {
      ASSIGN_OR_RETURN(const std::string part, cursor_.TakeName());
      absl::StrAppend(&name, ".", part);
    }
    return name;
  }

  Parsed Test(ExpressionPtr value) {
    const bool negated = cursor_.SkipName("not");
    Draft test = Make(Kind::kTest);
    ASSIGN_OR_RETURN(test->name, DottedName());
    if (!IsTest(test->name)) NoteUnknown("test", *test);
    test->operands.push_back(std::move(value));
    if (cursor_.Skip("(")) {
      RETURN_IF_ERROR(CallArguments(test.get()));
    } else if (StartsArgument()) {
      if (cursor_.IsName("is")) return cursor_.Fault("tests cannot follow each other");
      ASSIGN_OR_RETURN(ExpressionPtr argument, Primary());
      ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
      test->operands.push_back(std::move(argument));
    }
    if (!negated) return Finish(std::move(test));
    Draft negation = Make(Kind::kUnary, "not");
    ASSIGN_OR_RETURN(ExpressionPtr positive, Finish(std::move(test)));
    negation->operands.push_back(std::move(positive));
    return Finish(std::move(negation));
  }

  // `x is divisibleby 3`: a test's argument may have no parentheses.
  bool StartsArgument() const {
    switch (cursor_.Peek().kind) {
      case Token::Kind::kString:
      case Token::Kind::kInteger:
      case Token::Kind::kFloat: return true;
      case Token::Kind::kName:
        return std::ranges::none_of(
            std::initializer_list<std::string_view>{"else", "or", "and"},
            [this](std::string_view keyword) { return cursor_.IsName(keyword); });
      default: return cursor_.IsOperator("[") || cursor_.IsOperator("{");
    }
  }

  Cursor& cursor_;
  int nesting_ = 0;
  absl::Status unknown_;  // the first filter or test that is not known and surely reached
};

// Several expressions with commas between them are a tuple.
Parsed TupleOf(Cursor* cursor, Parsed (*part)(Cursor*)) {
  ASSIGN_OR_RETURN(ExpressionPtr first, part(cursor));
  if (!cursor->IsOperator(",")) return first;
  auto tuple = std::make_unique<Expression>();
  tuple->kind = Kind::kTuple;
  tuple->place = {cursor->Peek().line, cursor->Peek().column};
  tuple->depth = first->depth + 1;
  tuple->operands.push_back(std::move(first));
  while (cursor->Skip(",")) {
    const Token::Kind next_kind = cursor->Peek().kind;
    if (next_kind == Token::Kind::kBlockEnd || next_kind == Token::Kind::kOutputEnd) break;
    ASSIGN_OR_RETURN(ExpressionPtr next, part(cursor));
    tuple->depth = std::max(tuple->depth, next->depth + 1);
    tuple->operands.push_back(std::move(next));
  }
  return ExpressionPtr(std::move(tuple));
}

}  // namespace

absl::StatusOr<ExpressionPtr> ParseExpression(Cursor* cursor) {
  ExpressionParser parser(cursor);
  return parser.Known(parser.Condition());
}

absl::StatusOr<ExpressionPtr> ParseTuple(Cursor* cursor) {
  return TupleOf(cursor, ParseExpression);
}

absl::StatusOr<ExpressionPtr> ParseTupleWithoutCondition(Cursor* cursor) {
  return TupleOf(cursor, [](Cursor* c) {
    ExpressionParser parser(c);
    return parser.Known(parser.Or());
  });
}

absl::StatusOr<ExpressionPtr> ParseFilters(Cursor* cursor) {
  ExpressionParser parser(cursor);
  cursor->Skip("|");
  ASSIGN_OR_RETURN(ExpressionPtr filter, parser.Filter(nullptr));
  while (cursor->Skip("|")) {
    ASSIGN_OR_RETURN(filter, parser.Filter(std::move(filter)));
  }
  return parser.Known(std::move(filter));
}

}  // namespace quire::jinja
