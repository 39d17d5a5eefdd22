// JSON as values of a template: members keep the order in which they were written.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/json.h"
#include "server/text/jinja/values/value.h"

namespace quire {

// Of a request: deeper than any tool's schema and half of what values may nest; a conversation of
// 4096 messages with 16 parts each.
inline constexpr JsonLimits kRequestJson = {32, size_t{64} << 20, 65'536};

// INVALID_ARGUMENT names `what` and the byte offset of the fault: not JSON, a duplicate key, an
// integer outside 64 bits, or beyond `limits`.
absl::StatusOr<jinja::Value> ReadJsonValue(std::string_view text, const std::string& what,
                                           const JsonLimits& limits = kRequestJson);

}  // namespace quire
