// Prints template values as Python's str() and json.dumps() do.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/text/template/jinja_value.h"

namespace quire::jinja {

// As Python's str(), which {{ }} prints. An undefined value prints nothing.
std::string ToString(const Value& value);

struct JsonStyle {
  int indent = -1;  // negative: one line
  bool sort_keys = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// As Python's json.dumps(ensure_ascii=False).
absl::StatusOr<std::string> ToJson(const Value& value, const JsonStyle& style);

}  // namespace quire::jinja
