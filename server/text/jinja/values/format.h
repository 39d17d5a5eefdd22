// Prints template values as Python's str() and json.dumps() do.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/text/jinja/values/budget.h"
#include "server/text/jinja/values/value.h"

namespace quire::jinja {

// As Python's str(), which {{ }} prints. An undefined value prints nothing.
std::string ToString(const Value& value);
// As Python's repr().
std::string ToRepr(const Value& value);

// The form in which a safe text takes a value in: text that is not safe has its markup escaped.
Value Escaped(const Value& value);

struct JsonStyle {
  std::optional<std::string> indent;  // before each level; none: one line
  bool sort_keys = false;
  bool ensure_ascii = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// As Python's json.dumps(). INVALID_ARGUMENT for values without a JSON form, and for more text than
// any may have.
absl::StatusOr<std::string> ToJson(const Value& value, const JsonStyle& style,
                                   const Budget& budget);

}  // namespace quire::jinja
