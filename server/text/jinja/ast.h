// The syntax tree of a chat template: plain data that the parser builds and the interpreter walks.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/text/jinja/values/value.h"

namespace quire::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

// Where a construct begins in the source, both from 1; columns count bytes.
struct Place {
  int line = 1;
  int column = 1;
};

struct Expression {
  enum class Kind : uint8_t {
    kConstant,   // value
    kVariable,   // name
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
    kCall,       // operands[0](operands[1]...)
    kFilter,     // operands[0] | name(operands[1]...); without operands[0] in a filter block
    kTest,       // operands[0] is name(operands[1]...)
  };
  Kind kind = Kind::kConstant;
  Place place;
  int depth = 1;  // of this subtree
  std::string name;
  Value value;
  std::vector<ExpressionPtr> operands;
  std::vector<std::string> operators;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;  // named arguments of calls
  ExpressionPtr more_arguments, more_keywords;                  // *list and **dict of calls
};

// The left side of an assignment: a variable, name.field of a namespace, or parts.
struct Target {
  std::string name, field;
  std::vector<Target> parts;
};

struct MacroStatement;
struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

struct Statement {
  enum class Kind : uint8_t {
    kText,    // text
    kOutput,  // expression
    kIf,      // branches; otherwise
    kFor,     // target in expression if condition: body; otherwise
    kSet,     // target = expression; without one, of the text that body prints, through `filter`
    kMacro,   // macro
    kCall,    // call expression, with macro as `caller`
    kFilter,  // the text that body prints, through `filter`
    kWith,    // assignments; body
    kBody,    // body, with variables of its own
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  Place place;
  bool recursive = false;  // of a loop
  std::string text;
  Target target;
  // A filter's innermost operand is null: it stands for the text of the body.
  ExpressionPtr expression, condition, filter;
  Block body, otherwise;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  std::unique_ptr<const MacroStatement> macro;
};

struct MacroStatement {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with defaults, null if none
  // The body says varargs, kwargs, caller: only then are such arguments taken.
  bool takes_varargs = false, takes_kwargs = false, takes_caller = false;
  Block body;
};

}  // namespace quire::jinja
