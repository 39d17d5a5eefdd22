// Positions first, then names, then defaults.
#include "server/text/jinja/macro_call.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "server/text/jinja/values/charges.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/jinja/values/fault.h"

namespace quire::jinja {
namespace {

// Takes `name` out of the named arguments.
std::optional<Value> TakeNamed(Arguments* args, const std::string& name) {
  const auto at = std::ranges::find(args->named, name, &std::pair<std::string, Value>::first);
  if (at == args->named.end()) return std::nullopt;
  Value value = std::move(at->second);
  args->named.erase(at);
  return value;
}

absl::Status SetVarargs(const MacroStatement& macro, List more, Scope* scope) {
  if (macro.takes_varargs) {
    for (const Value& value : more) RETURN_IF_ERROR(CheckStorable(value));
    scope->Set("varargs", Value::Of(std::move(more), Value::Order::kTuple));
  } else if (!more.empty()) {
    return Fault("macro '", macro.name, "' takes ", macro.parameters.size(), " arguments");
  }
  return absl::OkStatus();
}

absl::Status SetKwargs(const MacroStatement& macro, const Arguments& args, Scope* scope) {
  if (!macro.takes_kwargs) {
    if (args.named.empty()) return absl::OkStatus();
    return Fault("macro '", macro.name, "' has no argument '", args.named[0].first, "'");
  }
  Dict named;
  for (const auto& [name, value] : args.named) {
    RETURN_IF_ERROR(CheckStorable(value));
    named.Set(name, value);
  }
  scope->Set("kwargs", Value::Of(std::move(named)));
  return absl::OkStatus();
}

}  // namespace

absl::Status BindArguments(const MacroStatement& macro, Arguments args, Scope* scope,
                           const std::function<absl::StatusOr<Value>(const Expression&)>& compute) {
  const size_t given = std::min(args.positional.size(), macro.parameters.size());
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, otherwise] = macro.parameters[i];
    std::optional<Value> value = i < given ? args.positional[i] : TakeNamed(&args, name);
    if (!value.has_value() && otherwise != nullptr) {
      ASSIGN_OR_RETURN(value, compute(*otherwise));
    }
    scope->Set(name, value.has_value() ? *std::move(value) : Value::MakeUndefined(name));
  }
  if (macro.takes_caller) {
    scope->Set("caller", TakeNamed(&args, "caller").value_or(Value::MakeUndefined("caller")));
  }
  const auto behind = args.positional.begin() + static_cast<std::ptrdiff_t>(given);
  RETURN_IF_ERROR(SetVarargs(macro, List(behind, args.positional.end()), scope));
  return SetKwargs(macro, args, scope);
}

}  // namespace quire::jinja
