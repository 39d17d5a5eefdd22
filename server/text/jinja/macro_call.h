// The arguments of a macro's call become variables of its scope.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/text/jinja/ast.h"
#include "server/text/jinja/scope.h"
#include "server/text/jinja/values/access.h"
#include "server/text/jinja/values/value.h"

namespace quire::jinja {

// Sets the parameters of `macro` in `scope`, and varargs, kwargs and caller where its body says
// them. Defaults are computed in the order of the parameters and may use those before. Takes the
// arguments apart. INVALID_ARGUMENT for arguments that the macro does not take.
absl::Status BindArguments(const MacroStatement& macro, Arguments args, Scope* scope,
                           const std::function<absl::StatusOr<Value>(const Expression&)>& compute);

}  // namespace quire::jinja
