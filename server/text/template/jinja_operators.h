// The operators of template expressions.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "server/text/template/jinja_value.h"

namespace quire::jinja {

// INVALID_ARGUMENT for operands that do not fit.
absl::StatusOr<Value> Add(const Value& left, const Value& right);
// - * / // % **; repeated text stays within `max_bytes`.
absl::StatusOr<Value> ApplyBinary(const std::string& op, const Value& left, const Value& right,
                                  size_t max_bytes);
absl::StatusOr<Value> ApplySign(const std::string& op, const Value& operand);
// == != < <= > >= in, not in.
absl::StatusOr<bool> Holds(const std::string& op, const Value& left, const Value& right);

}  // namespace quire::jinja
