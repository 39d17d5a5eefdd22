// JsonNode: a value of a JSON file with its place in it, and the checks that readers of
// tokenizer.json share. Every refusal names the place: "normalizer.normalizers[1].type: ...".
// Plain functions; any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/json.h"

namespace quire {

// `value` is borrowed: the document outlives the node.
struct JsonNode {
  const nlohmann::json& value;
  std::string path;  // "" for the root

  // The member or element exists (Has, or an index below the size).
  JsonNode At(const char* key) const;
  JsonNode At(size_t index) const;
  // An object's member that is not null.
  bool Has(const char* key) const { return value.contains(key) && !value.at(key).is_null(); }
};

// INVALID_ARGUMENT with the place and `reason`, or with the value and "is not supported".
absl::Status Refuse(const JsonNode& node, const std::string& reason);
absl::Status Refuse(const JsonNode& node);

// Refuses what is not an object, and the first key that is not in `known`.
absl::Status CheckKeys(const JsonNode& node, std::initializer_list<const char*> known);

// Members of an object. Absent and null members are `otherwise`, or refused where there is none.
absl::StatusOr<bool> ReadBool(const JsonNode& node, const char* key, bool otherwise);
absl::StatusOr<std::string> ReadString(const JsonNode& node, const char* key);
// A string of one code point.
absl::StatusOr<std::string> ReadChar(const JsonNode& node, const char* key);
absl::StatusOr<int32_t> ReadCount(const JsonNode& node, const char* key, int32_t limit);
absl::StatusOr<JsonNode> ReadList(const JsonNode& node, const char* key);
// The value as a token id: an integer in [0, 4 Mi], which bounds the arrays that ids index.
absl::StatusOr<int32_t> ReadId(const JsonNode& node);

// The steps of a Sequence, whose list is under `list_key`, of any nesting; another node is its own
// only step. Each step is an object with a string `type`.
absl::StatusOr<std::vector<JsonNode>> FlattenSequence(const JsonNode& node, const char* list_key);

}  // namespace quire
