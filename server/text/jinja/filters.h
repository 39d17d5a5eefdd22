// The filters of chat templates, as functions of values.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "server/text/jinja/values/access.h"
#include "server/text/jinja/values/budget.h"
#include "server/text/jinja/values/value.h"

namespace quire::jinja {

// Whether `name` is a known filter.
bool IsFilter(std::string_view name);
// INVALID_ARGUMENT for arguments that do not fit, and for a filter that is not known.
absl::StatusOr<Value> ApplyFilter(std::string_view name, const Value& value, const Arguments& args,
                                  Budget* budget);

}  // namespace quire::jinja
