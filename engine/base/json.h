// ParseJson: parses untrusted JSON. nlohmann-json silently keeps the last of duplicate keys and
// recurses without a limit, so the text goes through a SAX pass that refuses both.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace quire {

struct JsonLimits {
  int max_depth = 64;
  size_t max_bytes = size_t{256} << 20;
  // Keys and values. A value may take 3 bytes of text ("[],") and 100 of memory: this limit, not
  // the length of the text, bounds the memory.
  size_t max_values = size_t{16} << 20;
};

// Parses `text` strictly (no comments, no trailing text, valid UTF-8, no duplicate keys, no NaN).
// INVALID_ARGUMENT names `what` (a file or a field) and the byte offset of the fault.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const std::string& what,
                                         const JsonLimits& limits = {});
// Reads and parses a file; NOT_FOUND or INVALID_ARGUMENT name the path.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, const JsonLimits& limits = {});

}  // namespace quire
