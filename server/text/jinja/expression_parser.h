// Parses the expressions of chat templates from a cursor over tokens.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/jinja/ast.h"
#include "server/text/jinja/lexer.h"

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

  // Where a branch may not be taken, an unknown filter or test is an error only when it is reached,
  // as in jinja2. Returns what was set before.
  bool SetSoft(bool soft) { return std::exchange(soft_, soft); }
  bool soft() const { return soft_; }
  size_t position() const { return at_; }
  // A name in the tokens from `begin` to here.
  bool SaysSince(size_t begin, std::string_view name) const;

 private:
  const std::vector<Token> tokens_;
  size_t at_ = 0;
  bool soft_ = false;
};

absl::StatusOr<ExpressionPtr> ParseExpression(Cursor* cursor);
// One expression, or several with commas between them.
absl::StatusOr<ExpressionPtr> ParseTuple(Cursor* cursor);
// The same; stops before an `if`, which then belongs to the enclosing statement.
absl::StatusOr<ExpressionPtr> ParseTupleWithoutCondition(Cursor* cursor);
// One filter or several (a | b), without the value that they take.
absl::StatusOr<ExpressionPtr> ParseFilters(Cursor* cursor);

}  // namespace quire::jinja
