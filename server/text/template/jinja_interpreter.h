// Runs a parsed chat template within limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/template/jinja_ast.h"

namespace quire::jinja {

struct Limits {
  int64_t steps = 1'000'000;  // one per evaluation, and one per 64 bytes of text produced
  size_t output_bytes = 4 << 20;
  int64_t time_ns = 100'000'000;  // of the calling thread's CPU time
};

struct Outcome {
  std::string text;
  bool raised = false;  // by raise_exception: `text` is its message
};

// Renders `block` with the given global variables. INVALID_ARGUMENT names the line of the error, or
// the limit that was exceeded.
absl::StatusOr<Outcome> Run(const Block& block, std::vector<std::pair<std::string, Value>> globals,
                            const Limits& limits);

}  // namespace quire::jinja
