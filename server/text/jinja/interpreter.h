// Runs a parsed chat template within limits.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/text/jinja/ast.h"
#include "server/text/jinja/values/budget.h"

namespace quire::jinja {

struct Outcome {
  std::string text;
  bool raised = false;  // by raise_exception: `text` is its message
};

struct RunInput {
  std::vector<std::pair<std::string, Value>> variables;
  absl::Time now;  // of strftime_now
  Limits limits;
};

// Renders `block`. INVALID_ARGUMENT names the place of the error, or the limit that was exceeded.
absl::StatusOr<Outcome> Run(const Block& block, RunInput input);

}  // namespace quire::jinja
