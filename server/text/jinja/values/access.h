// Access to parts of a chat template's values, and the arguments of calls.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/jinja/values/budget.h"
#include "server/text/jinja/values/value.h"

namespace quire::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at `index` or called `name`, nullptr if absent.
  const Value* Find(size_t index, std::string_view name) const;
};

// value.name and value[key]; undefined if there is no such part, INVALID_ARGUMENT if `value` is
// undefined.
absl::StatusOr<Value> GetAttribute(const Value& value, const std::string& name);
absl::StatusOr<Value> GetItem(const Value& value, const Value& key);
// The part at a path of names and indices with dots between ("function.name"), or at an index.
absl::StatusOr<Value> GetPath(const Value& value, const Value& path, Budget* budget);
// value[start:stop:step]; none bounds are open.
absl::StatusOr<Value> GetSlice(const Value& value, const Value& start, const Value& stop,
                               const Value& step);
absl::StatusOr<bool> Contains(const Value& container, const Value& item);
// The values that a for loop visits: items, keys or code points. A generator gives what is left of
// it, once.
absl::StatusOr<List> Iterate(const Value& value);
absl::StatusOr<int64_t> LengthOf(const Value& value);  // -1: the value has no length

}  // namespace quire::jinja
