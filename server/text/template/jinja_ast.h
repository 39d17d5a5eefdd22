// The syntax tree of a chat template: plain data that the parser builds and the interpreter walks.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/text/template/jinja_value.h"

namespace quire::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Expression {
  enum class Kind : uint8_t {
    kConstant,   // value
    kVariable,   // name
    kLoop,       // loop.name, or loop.name(operands)
    kList,       // operands
    kTuple,      // operands
    kDict,       // key, value, key, value ...
    kChain,      // operands left to right with operator `name`: + ~ and or
    kBinary,     // operands[0] name operands[1]: - * / // % **
    kUnary,      // name operands[0]: not - +
    kCompare,    // operands[0] operators[0] operands[1] operators[1] operands[2] ...
    kIf,         // operands[0] if operands[1] else operands[2] (null: undefined)
    kAttribute,  // operands[0].name
    kItem,       // operands[0][operands[1]]
    kSlice,      // operands[0][operands[1]:operands[2]:operands[3]], each may be null
    kCall,       // name(operands...), of a function or macro
    kMethod,     // operands[0].name(operands[1]...)
    kFilter,     // operands[0] | name(operands[1]...)
    kTest,       // operands[0] is name(operands[1]...)
  };
  Kind kind = Kind::kConstant;
  int line = 1;
  int depth = 1;  // of this subtree
  std::string name;
  Value value;
  std::vector<ExpressionPtr> operands;
  std::vector<std::string> operators;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;  // named arguments of calls
};

struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

struct Statement {
  enum class Kind : uint8_t {
    kText,      // name is the text
    kOutput,    // expression
    kIf,        // branches; otherwise
    kFor,       // targets in expression if condition: body; otherwise
    kSet,       // targets = expression; without one, of the text that body prints
    kSetField,  // name.field = expression
    kMacro,     // macro
    kBody,      // body, as it is
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 1;
  std::string name, field;
  std::vector<std::string> targets;
  ExpressionPtr expression, condition;
  Block body, otherwise;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  std::unique_ptr<const MacroStatement> macro;
};

struct MacroStatement {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with defaults, null if none
  Block body;
};

// Maximum nesting of expressions, of blocks and of values.
inline constexpr int kMaxDepth = 64;

}  // namespace quire::jinja
