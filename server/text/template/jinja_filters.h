// The filters of chat templates, as pure functions of values.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "server/text/template/jinja_access.h"
#include "server/text/template/jinja_value.h"

namespace quire::jinja {

// Whether `name` is a known filter.
bool IsFilter(std::string_view name);
// REQUIRES IsFilter(name). INVALID_ARGUMENT for arguments that do not fit.
absl::StatusOr<Value> ApplyFilter(std::string_view name, const Value& value, const Arguments& args);

}  // namespace quire::jinja
