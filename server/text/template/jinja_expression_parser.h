// Parses the expressions of chat templates from a cursor over tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/template/jinja_ast.h"
#include "server/text/template/jinja_lexer.h"

namespace quire::jinja {

// Reads tokens front to back; the last one is kEnd and is never passed.
class Cursor {
 public:
  explicit Cursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Peek() const { return tokens_[at_]; }
  const Token& Next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool Skip(std::string_view op);        // an operator
  bool SkipName(std::string_view name);  // a keyword
  bool IsName(std::string_view name) const;
  bool IsOperator(std::string_view op) const;
  absl::Status Expect(Token::Kind kind);
  absl::StatusOr<std::string> TakeName();
  absl::Status Fault(const std::string& reason) const;

 private:
  const std::vector<Token> tokens_;
  size_t at_ = 0;
};

absl::StatusOr<ExpressionPtr> ParseExpression(Cursor* cursor);
// Stops before an `if`, which then belongs to the enclosing statement.
absl::StatusOr<ExpressionPtr> ParseWithoutCondition(Cursor* cursor);
// One expression, or several with commas between them.
absl::StatusOr<ExpressionPtr> ParseTuple(Cursor* cursor);

}  // namespace quire::jinja
