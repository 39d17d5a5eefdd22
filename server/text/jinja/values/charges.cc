// Charges values by their parts.
#include "server/text/jinja/values/charges.h"

#include "engine/base/status_macros.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/jinja/values/fault.h"

namespace quire::jinja {
absl::Status ChargeArguments(const Arguments& args, Budget* budget) {
  for (const Value& value : args.positional) RETURN_IF_ERROR(budget->Charge(value.weight()));
  for (const auto& named : args.named) {
    RETURN_IF_ERROR(budget->ChargeText(named.first.size()));
    RETURN_IF_ERROR(budget->Charge(named.second.weight()));
  }
  return absl::OkStatus();
}

absl::Status ChargeResult(const Value& value, Budget* budget) {
  if (value.depth() > kMaxDepth) return Fault("values nested deeper than ", kMaxDepth);
  if (value.is_string()) {
    RETURN_IF_ERROR(budget->CheckText(value.string().size()));
    return budget->ChargeText(value.string().size());
  }
  if (!value.is_namespace()) RETURN_IF_ERROR(CheckStorable(value));
  return value.is_sequence() ? budget->ChargeItems(value.list().size()) : absl::OkStatus();
}

absl::StatusOr<List> ChargedItems(const Value& value, Budget* budget) {
  if (value.is_string()) {
    RETURN_IF_ERROR(budget->ChargeItems(kItemsOfCodePoint * value.string().size()));
  }
  if (value.is_sequence()) RETURN_IF_ERROR(budget->ChargeItems(value.list().size()));
  if (value.is_dict()) RETURN_IF_ERROR(budget->ChargeItems(value.dict().size()));
  return Iterate(value);
}

absl::Status CheckStorable(const Value& value) {
  return value.Has(Value::Changing::kNamespace)
             ? Fault("a namespace within another value is not supported")
             : absl::OkStatus();
}

}  // namespace quire::jinja
