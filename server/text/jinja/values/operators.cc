// Arithmetic with Python's rules on 64-bit integers and doubles; overflow is an error.
#include "server/text/jinja/values/operators.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/values/access.h"
#include "server/text/jinja/values/fault.h"
#include "server/text/jinja/values/format.h"
#include "server/text/jinja/values/printf.h"
#include "server/text/jinja/values/text.h"

namespace quire::jinja {
namespace {

using Order = Value::Order;
absl::Status Overflow() { return Fault("integer out of range"); }

absl::StatusOr<Value> IntPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return Fault("division by zero");
    return Value::Of(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t power = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0 && __builtin_mul_overflow(power, base, &power)) return Overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value::Of(power);
}

absl::StatusOr<Value> IntBinary(const std::string& op, int64_t a, int64_t b) {
  int64_t out = 0;
  if (op == "-")
    return __builtin_sub_overflow(a, b, &out) ? Overflow() : absl::StatusOr<Value>(Value::Of(out));
  if (op == "*")
    return __builtin_mul_overflow(a, b, &out) ? Overflow() : absl::StatusOr<Value>(Value::Of(out));
  if (op == "**") return IntPower(a, b);
  if (b == 0) return Fault("division by zero");
  if (op == "/") return Value::Of(static_cast<double>(a) / static_cast<double>(b));
  if (a == INT64_MIN && b == -1)
    return op == "%" ? absl::StatusOr<Value>(Value::Of(int64_t{0})) : Overflow();
  // Rounds down; the remainder has the divisor's sign.
  const int64_t remainder = a % b, adjust = remainder != 0 && (remainder < 0) != (b < 0);
  return Value::Of(op == "%" ? remainder + (adjust != 0 ? b : 0) : a / b - adjust);
}

absl::StatusOr<Value> FloatPower(double a, double b) {
  if (a == 0 && b < 0) return Fault("division by zero");
  if (a < 0 && std::floor(b) != b) return Fault("a complex number");
  const double power = std::pow(a, b);
  if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) return Fault("float out of range");
  return Value::Of(power);
}

// Python computes the remainder first, so that the quotient fits it.
double FloorDivide(double a, double b) {
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (remainder < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

absl::StatusOr<Value> FloatBinary(const std::string& op, double a, double b) {
  if (op == "-") return Value::Of(a - b);
  if (op == "*") return Value::Of(a * b);
  if (op == "**") return FloatPower(a, b);
  if (b == 0) return Fault("division by zero");
  if (op == "/") return Value::Of(a / b);
  if (op == "//") return Value::Of(FloorDivide(a, b));
  const double remainder = std::fmod(a, b);
  if (remainder == 0) return Value::Of(std::copysign(0.0, b));
  return Value::Of((remainder < 0) != (b < 0) ? remainder + b : remainder);
}

absl::StatusOr<Value> Repeat(const Value& value, int64_t count, Budget* budget) {
  count = std::max<int64_t>(count, 0);
  const int64_t size = value.is_string() ? static_cast<int64_t>(value.string().size())
                                         : static_cast<int64_t>(value.list().size());
  const int64_t limit = static_cast<int64_t>(budget->limits().output_bytes);
  if (size > 0 && count > limit / size) {
    return Fault("more than ", limit, value.is_string() ? " bytes of text" : " items");
  }
  if (!value.is_string()) {
    RETURN_IF_ERROR(budget->ChargeItems(static_cast<size_t>(size * count)));
    List out;
    for (; size > 0 && count > 0; --count) {
      out.insert(out.end(), value.list().begin(), value.list().end());
    }
    return Value::Of(std::move(out), value.order());
  }
  std::string out;
  for (; size > 0 && count > 0; --count) out += value.string();
  return Value::Of(std::move(out), value.is_safe());
}

// Each item of a list is compared as far as it and the one that is looked for go. A key is hashed.
int64_t CostOfSearch(const Value& container, const Value& item) {
  if (container.is_string()) return container.weight() + item.weight();
  if (!container.is_sequence()) return item.weight();
  const int64_t items = static_cast<int64_t>(container.list().size());
  return items / 16 + std::min(container.weight(), items * (item.weight() - 1));
}

bool CanRepeat(const Value& value) {
  return value.is_string() || value.is_ordered(Value::Order::kList) ||
         value.is_ordered(Value::Order::kTuple);
}

// Text that is added to a safe text is escaped, as in Python's Markup.
absl::StatusOr<Value> AddText(const Value& left, const Value& right) {
  if (!left.is_safe() && !right.is_safe()) return Value::Of(left.string() + right.string());
  return Value::Of(Escaped(left).string() + Escaped(right).string(), /*safe=*/true);
}

}  // namespace

absl::StatusOr<Value> Add(const Value& left, const Value& right, Budget* budget) {
  if (left.is_string() && right.is_string()) {
    const size_t size = left.string().size() + right.string().size();
    RETURN_IF_ERROR(budget->CheckText(size));
    RETURN_IF_ERROR(budget->ChargeText(size));
    return AddText(left, right);
  }
  if (left.is_number() && right.is_number()) {
    if (left.is_float() || right.is_float()) return Value::Of(left.AsDouble() + right.AsDouble());
    int64_t sum = 0;
    if (__builtin_add_overflow(*left.AsInt(), *right.AsInt(), &sum)) return Overflow();
    return Value::Of(sum);
  }
  const bool lists = left.is_ordered(Order::kList) && right.is_ordered(Order::kList);
  const bool tuples = left.is_ordered(Order::kTuple) && right.is_ordered(Order::kTuple);
  if (lists || tuples) {
    RETURN_IF_ERROR(budget->ChargeItems(left.list().size() + right.list().size()));
    List joined = left.list();
    joined.insert(joined.end(), right.list().begin(), right.list().end());
    return Value::Of(std::move(joined), left.order());
  }
  return Fault(left.TypeName(), " + ", right.TypeName());
}

absl::StatusOr<Value> ApplyBinary(const std::string& op, const Value& left, const Value& right,
                                  Budget* budget) {
  if (op == "*" && CanRepeat(left) && right.AsInt()) return Repeat(left, *right.AsInt(), budget);
  if (op == "*" && CanRepeat(right) && left.AsInt()) return Repeat(right, *left.AsInt(), budget);
  if (op == "%" && left.is_string()) {
    const bool many = right.is_ordered(Order::kTuple);
    List parts = many ? right.list() : List{right};
    for (Value& part : parts) part = left.is_safe() ? Escaped(part) : part;
    const Value values = many ? Value::Of(std::move(parts), Order::kTuple) : parts[0];
    ASSIGN_OR_RETURN(std::string text, PercentFormat(left.string(), values, budget));
    return Value::Of(std::move(text), left.is_safe());
  }
  if (!left.is_number() || !right.is_number()) {
    return Fault(left.TypeName(), " ", op, " ", right.TypeName());
  }
  if (left.is_float() || right.is_float()) {
    return FloatBinary(op, left.AsDouble(), right.AsDouble());
  }
  return IntBinary(op, *left.AsInt(), *right.AsInt());
}

absl::StatusOr<Value> ApplySign(const std::string& op, const Value& operand) {
  if (!operand.is_number()) return Fault(op, operand.TypeName());
  if (operand.is_float()) return Value::Of(op == "-" ? -operand.AsDouble() : operand.AsDouble());
  return op == "-" ? IntBinary("-", 0, *operand.AsInt())
                   : absl::StatusOr<Value>(Value::Of(*operand.AsInt()));
}

absl::StatusOr<bool> Holds(const std::string& op, const Value& left, const Value& right,
                           Budget* budget) {
  if (op == "in" || op == "not in") {
    RETURN_IF_ERROR(budget->Charge(CostOfSearch(right, left)));
    ASSIGN_OR_RETURN(const bool contained, Contains(right, left));
    return contained == (op == "in");
  }
  const int64_t cost = std::min(left.weight(), right.weight());
  RETURN_IF_ERROR(budget->Charge(cost));
  if (op == "==") return Equal(left, right);
  if (op == "!=") return !Equal(left, right);
  // Each level looks for the first difference anew.
  RETURN_IF_ERROR(budget->Charge(cost * std::min(left.depth(), right.depth())));
  ASSIGN_OR_RETURN(const int order, Compare(left, right));
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  return op == ">" ? order > 0 : order >= 0;
}

}  // namespace quire::jinja
