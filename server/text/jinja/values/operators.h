// The operators of template expressions.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/text/jinja/values/budget.h"
#include "server/text/jinja/values/value.h"

namespace quire::jinja {

// INVALID_ARGUMENT for operands that do not fit.
absl::StatusOr<Value> Add(const Value& left, const Value& right, Budget* budget);
// - * / // % **; `%` formats text.
absl::StatusOr<Value> ApplyBinary(const std::string& op, const Value& left, const Value& right,
                                  Budget* budget);
absl::StatusOr<Value> ApplySign(const std::string& op, const Value& operand);
// == != < <= > >= in, not in.
absl::StatusOr<bool> Holds(const std::string& op, const Value& left, const Value& right,
                           Budget* budget);

}  // namespace quire::jinja
