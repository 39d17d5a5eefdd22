// Fault: the error of a template's expression, whose message is joined from parts.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace quire::jinja {

template <class Part>
const Part& MessagePart(const Part& part) {
  return part;
}
inline absl::string_view MessagePart(const std::string_view& part) {
  return {part.data(), part.size()};
}

template <class... Parts>
absl::Status Fault(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(MessagePart(parts)...));
}

}  // namespace quire::jinja
