// The prices of values in steps of a render's budget. A value is charged before the work or the
// copy that it causes.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/text/jinja/values/access.h"
#include "server/text/jinja/values/budget.h"
#include "server/text/jinja/values/value.h"

namespace quire::jinja {

// The memory of a pair of a dict, in items of a list; and of a code point that becomes a string.
inline constexpr size_t kItemsOfPair = 4;
inline constexpr size_t kItemsOfCodePoint = 3;

// As printing, comparing or hashing each argument once.
absl::Status ChargeArguments(const Arguments& args, Budget* budget);
// A value that an expression or a filter made. INVALID_ARGUMENT if it is longer or nested deeper
// than a value may be, or holds a namespace.
absl::Status ChargeResult(const Value& value, Budget* budget);
// Iterate(value), charged before the items are copied.
absl::StatusOr<List> ChargedItems(const Value& value, Budget* budget);
// INVALID_ARGUMENT for a namespace, or what holds one: kept in a namespace it could reach itself.
absl::Status CheckStorable(const Value& value);

}  // namespace quire::jinja
