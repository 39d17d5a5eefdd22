// SplitLeft: takes left recursion out of a rule, which a reader of texts from left to right cannot
// follow.
#pragma once

#include <string_view>
#include <vector>

#include "engine/grammar/readers/lark_syntax.h"

namespace quire {

// The texts of a body of the rule `name` are those of `rest`, and those of the rule followed by one
// of `tails`.
struct LeftSplit {
  std::vector<LarkExpr> tails;
  LarkExpr rest;  // may be a choice of nothing
};

// Finds the rule where it is the first item of an alternative, also of one in a group or one that
// may be left out.
LeftSplit SplitLeft(LarkExpr body, std::string_view name);

// Equal to a rule `name` of this body, without calls of the rule before any other item.
LarkExpr WithoutLeftRecursion(LarkExpr body, std::string_view name);

}  // namespace quire
