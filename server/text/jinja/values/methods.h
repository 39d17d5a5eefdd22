// The methods of strings, lists, dicts and loops that chat templates call.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "server/text/jinja/values/access.h"
#include "server/text/jinja/values/budget.h"
#include "server/text/jinja/values/value.h"

namespace quire::jinja {

// Whether values of this type have the method, and it is supported. Methods that change a list or
// a dict are not, as in jinja2's immutable sandbox.
bool HasMethod(const Value& object, std::string_view name);
// INVALID_ARGUMENT for arguments that do not fit. REQUIRES HasMethod, or cycle or changed of a
// loop.
absl::StatusOr<Value> CallMethod(std::string_view name, const Value& object, const Arguments& args,
                                 Budget* budget);

}  // namespace quire::jinja
