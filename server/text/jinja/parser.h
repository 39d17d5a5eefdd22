// The parser of chat templates.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "server/text/jinja/ast.h"

namespace quire::jinja {

// INVALID_ARGUMENT names the line and the construct that is wrong or unsupported, including unknown
// filters and tests that are surely reached. Unknown methods are found when they are called.
absl::StatusOr<Block> Parse(const std::string& source);

}  // namespace quire::jinja
