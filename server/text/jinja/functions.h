// The functions that every chat template has: range, dict, namespace, raise_exception and
// strftime_now.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/text/jinja/values/access.h"
#include "server/text/jinja/values/value.h"

namespace quire::jinja {

std::vector<std::pair<std::string, Value>> EnvironmentFunctions();

// Calls one of them by name. ABORTED with the message of raise_exception; INVALID_ARGUMENT for
// arguments that do not fit. `now` is shown in the process's time zone, as Python does.
absl::StatusOr<Value> CallFunction(const std::string& name, const Arguments& args, absl::Time now);

}  // namespace quire::jinja
