// How schemas are combined: their keywords, one schema of two, and whether two have a document in
// common. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace quire {

using SchemaNode = nlohmann::ordered_json;  // members in the order of the text

// The node of a JSON text. INVALID_ARGUMENT has the byte offset; keys are unique.
absl::StatusOr<SchemaNode> ParseSchema(std::string_view text, int max_depth, size_t max_bytes);

// Keywords that restrict nothing, and are ignored.
bool IsAnnotation(std::string_view keyword);
// The types that the schema allows as its keywords show, all seven where they show none. "integer"
// stands beside "number".
std::vector<std::string> TypesOf(const SchemaNode& schema);
bool HasType(const SchemaNode& value, std::string_view type);

// A schema of the documents that both allow. INVALID_ARGUMENT "PATH: ..." names the keyword where
// there is none that is known to be right.
absl::StatusOr<SchemaNode> MergeSchemas(const SchemaNode& a, const SchemaNode& b,
                                        const std::string& path);

// True only if no document is allowed by both: by their types, their constants, or a required
// member that both have as different constants.
bool AreDisjoint(const SchemaNode& a, const SchemaNode& b);

}  // namespace quire
