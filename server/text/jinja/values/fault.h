// Fault: the error of a template's expression, whose message is joined from parts, and what of a
// text such a message quotes.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/text/unicode/unicode.h"

namespace quire::jinja {

template <class Part>
const Part& MessagePart(const Part& part) {
  return part;
}
inline absl::string_view MessagePart(const std::string_view& part) {
  return {part.data(), part.size()};
}

// As much of a text as a message may quote, in whole characters. REQUIRES valid UTF-8.
inline std::string_view Shortened(std::string_view text) {
  constexpr size_t kBytes = 40;
  return text.size() <= kBytes ? text : text.substr(0, CodePointBegin(text, kBytes));
}

template <class... Parts>
absl::Status Fault(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(MessagePart(parts)...));
}

}  // namespace quire::jinja
