// Arithmetic with Python's rules on 64-bit integers and doubles; overflow is an error.
#include "server/text/template/jinja_operators.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/template/jinja_access.h"

namespace quire::jinja {
namespace {

absl::Status Fault(const std::string& reason) { return absl::InvalidArgumentError(reason); }
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

absl::StatusOr<Value> FloatBinary(const std::string& op, double a, double b) {
  if (op == "-") return Value::Of(a - b);
  if (op == "*") return Value::Of(a * b);
  if (op == "**") return Value::Of(std::pow(a, b));
  if (b == 0) return Fault("division by zero");
  if (op == "/") return Value::Of(a / b);
  if (op == "//") return Value::Of(std::floor(a / b));
  const double remainder = std::fmod(a, b);
  return Value::Of(remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder);
}

absl::StatusOr<Value> Repeat(const Value& text, int64_t count, size_t max_bytes) {
  std::string out;
  if (count > 0 && text.string().size() > max_bytes / static_cast<size_t>(count)) {
    return Fault(absl::StrCat("more than ", max_bytes, " bytes of text"));
  }
  for (; count > 0 && !text.string().empty(); --count) out += text.string();
  return Value::Of(std::move(out));
}

}  // namespace

absl::StatusOr<Value> Add(const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) return Value::Of(left.string() + right.string());
  if (left.is_number() && right.is_number()) {
    if (left.is_float() || right.is_float()) return Value::Of(left.AsDouble() + right.AsDouble());
    int64_t sum = 0;
    if (__builtin_add_overflow(*left.AsInt(), *right.AsInt(), &sum)) return Overflow();
    return Value::Of(sum);
  }
  if (left.is_list() && right.is_list() && left.is_tuple() == right.is_tuple()) {
    List joined = left.list();
    joined.insert(joined.end(), right.list().begin(), right.list().end());
    return Value::Of(std::move(joined), left.is_tuple());
  }
  return Fault(absl::StrCat(left.TypeName(), " + ", right.TypeName()));
}

absl::StatusOr<Value> ApplyBinary(const std::string& op, const Value& left, const Value& right,
                                  size_t max_bytes) {
  if (op == "*" && left.is_string() && right.AsInt())
    return Repeat(left, *right.AsInt(), max_bytes);
  if (op == "*" && right.is_string() && left.AsInt())
    return Repeat(right, *left.AsInt(), max_bytes);
  if (op == "%" && left.is_string()) return Fault("formatting by % is not supported");
  if (!left.is_number() || !right.is_number()) {
    return Fault(absl::StrCat(left.TypeName(), " ", op, " ", right.TypeName()));
  }
  if (left.is_float() || right.is_float()) {
    return FloatBinary(op, left.AsDouble(), right.AsDouble());
  }
  return IntBinary(op, *left.AsInt(), *right.AsInt());
}

absl::StatusOr<Value> ApplySign(const std::string& op, const Value& operand) {
  if (!operand.is_number()) return Fault(absl::StrCat(op, operand.TypeName()));
  if (operand.is_float()) return Value::Of(op == "-" ? -operand.AsDouble() : operand.AsDouble());
  return op == "-" ? IntBinary("-", 0, *operand.AsInt())
                   : absl::StatusOr<Value>(Value::Of(*operand.AsInt()));
}

absl::StatusOr<bool> Holds(const std::string& op, const Value& left, const Value& right) {
  if (op == "==") return Equal(left, right);
  if (op == "!=") return !Equal(left, right);
  if (op == "in") return Contains(right, left);
  if (op == "not in") {
    ASSIGN_OR_RETURN(const bool contained, Contains(right, left));
    return !contained;
  }
  ASSIGN_OR_RETURN(const int order, Compare(left, right));
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  return op == ">" ? order > 0 : order >= 0;
}

}  // namespace quire::jinja
