// The methods of strings, lists and dicts that chat templates call, as pure functions of values.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "server/text/template/jinja_access.h"
#include "server/text/template/jinja_value.h"

namespace quire::jinja {

// Whether `name` is a known method.
bool IsMethod(std::string_view name);
// INVALID_ARGUMENT for objects without the method and arguments that do not fit.
absl::StatusOr<Value> CallMethod(std::string_view name, const Value& object, const Arguments& args);

}  // namespace quire::jinja
