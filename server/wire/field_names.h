// FieldNames: refusals in the words of another protocol. The shared decoder and the engine name the
// fields of quire.v1; a client of another protocol knows them by other names.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace quire {

struct FieldName {
  std::string_view quire;   // path in quire.v1.GenerateRequest
  std::string_view theirs;  // path in the other protocol's request
};

// `status` with the field that it names replaced; unchanged if it names none of `names`.
absl::Status WithFieldNames(const absl::Status& status, std::span<const FieldName> names);

// INVALID_ARGUMENT for a field that is set to something this server does not do. `reason`: what it
// lacks, such as "LoRA adapters are not served".
absl::Status NotServed(const std::string& field, const std::string& reason);

}  // namespace quire
