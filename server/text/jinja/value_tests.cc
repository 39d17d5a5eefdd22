// Three tables of tests.
#include "server/text/jinja/value_tests.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/filters.h"
#include "server/text/jinja/values/access.h"
#include "server/text/jinja/values/fault.h"
#include "server/text/jinja/values/format.h"
#include "server/text/jinja/values/methods.h"
#include "server/text/jinja/values/operators.h"
#include "server/text/jinja/values/text.h"

namespace quire::jinja {
namespace {

using Order = Value::Order;

// Tests of one value, which can neither fail nor take arguments.
struct PlainTest {
  std::string_view name;
  bool (*passes)(const Value&);
};
constexpr PlainTest kPlainTests[] = {
    {"defined", [](const Value& v) { return !v.is_undefined(); }},
    {"undefined", [](const Value& v) { return v.is_undefined(); }},
    {"none", [](const Value& v) { return v.is_none(); }},
    {"string", [](const Value& v) { return v.is_string(); }},
    {"mapping", [](const Value& v) { return v.is_dict(); }},
    {"number", [](const Value& v) { return v.is_number(); }},
    {"integer", [](const Value& v) { return v.is_int(); }},
    {"float", [](const Value& v) { return v.is_float(); }},
    {"boolean", [](const Value& v) { return v.is_bool(); }},
    {"true", [](const Value& v) { return v.is_bool() && v.IsTrue(); }},
    {"false", [](const Value& v) { return v.is_bool() && !v.IsTrue(); }},
    // An undefined value and a namespace have __call__ and __getitem__ of their own.
    {"callable", [](const Value& v) { return v.callable() != nullptr || v.is_undefined(); }},
    {"escaped", [](const Value& v) { return v.is_safe(); }},
    {"iterable",
     [](const Value& v) {
       return v.is_string() || v.is_sequence() || v.is_undefined() || v.is_dict();
     }},
    {"sequence",
     [](const Value& v) {
       return v.is_string() || v.is_indexed() || v.is_undefined() || v.is_dict();
     }},
};

struct ComparingTest {
  std::string_view name, op;
};
constexpr ComparingTest kComparingTests[] = {
    {"eq", "=="}, {"equalto", "=="}, {"==", "=="},      {"ne", "!="},
    {"!=", "!="}, {"lt", "<"},       {"lessthan", "<"}, {"<", "<"},
    {"le", "<="}, {"<=", "<="},      {"gt", ">"},       {">", ">"},
    {"ge", ">="}, {">=", ">="},      {"in", "in"},      {"greaterthan", ">"},
};

constexpr std::string_view kOtherTests[] = {"even",  "odd",   "divisibleby", "sameas",
                                            "lower", "upper", "filter",      "test"};

template <class Table>
auto FindIn(const Table& table, std::string_view name) {
  const auto at = std::ranges::find_if(table, [name](const auto& row) { return row.name == name; });
  return at == std::end(table) ? nullptr : &*at;
}

// x is even, x is divisibleby 3: whether nothing remains.
absl::StatusOr<bool> IsDivisible(const Value& value, const Value& by, Budget* budget) {
  ASSIGN_OR_RETURN(const Value rest, ApplyBinary("%", value, by, budget));
  return Equal(rest, Value::Of(int64_t{0}));
}

bool IsSame(const Value& a, const Value& b) {
  if (a.is_sequence() || a.is_dict()) {
    return a.is_sequence() == b.is_sequence() && a.is_dict() == b.is_dict() &&
           (a.is_dict() ? &a.dict() == &b.dict() : &a.list() == &b.list());
  }
  return a.is_bool() == b.is_bool() && a.is_float() == b.is_float() && Equal(a, b);
}

absl::StatusOr<bool> ApplyOther(std::string_view name, const Value& value, const Arguments& args,
                                Budget* budget) {
  if (name == "filter" || name == "test") {
    if (!value.is_string()) return false;
    return name == "filter" ? IsFilter(value.string()) : IsTest(value.string());
  }
  if (name == "lower" || name == "upper") {
    RETURN_IF_ERROR(budget->Charge(value.weight()));
    const std::string text = ToString(value);
    return text == (name == "lower" ? ToLower(text) : ToUpper(text)) &&
           ToLower(text) != ToUpper(text);
  }
  if (name == "even" || name == "odd") {
    ASSIGN_OR_RETURN(const Value rest, ApplyBinary("%", value, Value::Of(int64_t{2}), budget));
    return Equal(rest, Value::Of(int64_t{name == "even" ? 0 : 1}));
  }
  if (args.positional.size() != 1) return Fault("test '", name, "' needs one argument");
  RETURN_IF_ERROR(budget->Charge(std::min(value.weight(), args.positional[0].weight())));
  return name == "sameas" ? IsSame(value, args.positional[0])
                          : IsDivisible(value, args.positional[0], budget);
}

}  // namespace

bool IsTest(std::string_view name) {
  return FindIn(kPlainTests, name) != nullptr || FindIn(kComparingTests, name) != nullptr ||
         std::ranges::find(kOtherTests, name) != std::end(kOtherTests);
}

absl::StatusOr<bool> ApplyTest(std::string_view name, const Value& value, const Arguments& args,
                               Budget* budget) {
  const size_t count = args.positional.size() + args.named.size();
  if (const PlainTest* plain = FindIn(kPlainTests, name); plain != nullptr) {
    if (count != 0) return Fault("test '", name, "' takes no argument");
    return plain->passes(value);
  }
  if (const ComparingTest* comparing = FindIn(kComparingTests, name); comparing != nullptr) {
    if (count != 1) return Fault("test '", name, "' needs one argument");
    const Value& other = args.positional.empty() ? args.named[0].second : args.positional[0];
    return Holds(std::string(comparing->op), value, other, budget);
  }
  if (!IsTest(name)) return Fault("test '", Shortened(name), "' is not supported");
  return ApplyOther(name, value, args, budget);
}

}  // namespace quire::jinja
