// The field stands in the status twice: as its detail, and at the beginning of the message.
#include "server/wire/field_names.h"

#include "server/call/status_codec.h"

namespace quire {

absl::Status WithFieldNames(const absl::Status& status, std::span<const FieldName> names) {
  const std::string field = FieldOf(status);
  if (field.empty()) return status;
  for (const FieldName& name : names) {
    if (field != name.quire) continue;
    std::string text(status.message().data(), status.message().size());
    const std::string prefix = field + ": ";
    if (text.rfind(prefix, 0) == 0) text.erase(0, prefix.size());
    return InvalidField(std::string(name.theirs), text);
  }
  return status;
}

absl::Status NotServed(const std::string& field, const std::string& reason) {
  return InvalidField(field, reason + "; leave it out");
}

}  // namespace quire
