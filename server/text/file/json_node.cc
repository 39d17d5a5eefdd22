// Checks of JSON values, each with the place in its message.
#include "server/text/file/json_node.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/unicode/unicode.h"

namespace quire {
namespace {

// No real vocabulary comes near it.
constexpr int32_t kMaxId = 4 << 20;

absl::StatusOr<int32_t> ReadBounded(const JsonNode& node, int32_t limit) {
  const bool huge = node.value.is_number_unsigned() && node.value.get<uint64_t>() > INT64_MAX;
  const int64_t count = huge ? -1 : node.value.get<int64_t>();
  if (count < 0 || count > limit) return Refuse(node, absl::StrCat("is not in [0, ", limit, "]"));
  return static_cast<int32_t>(count);
}

}  // namespace

JsonNode JsonNode::At(const char* key) const {
  return {value.at(key), absl::StrCat(path, path.empty() ? "" : ".", key)};
}

JsonNode JsonNode::At(size_t index) const {
  return {value.at(index), absl::StrCat(path, "[", index, "]")};
}

absl::Status Refuse(const JsonNode& node, const std::string& reason) {
  return absl::InvalidArgumentError(absl::StrCat(node.path, node.path.empty() ? "" : ": ", reason));
}

absl::Status Refuse(const JsonNode& node) {
  std::string shown = node.value.is_primitive() ? node.value.dump(-1, ' ', /*ensure_ascii=*/true)
                                                : node.value.type_name();
  if (shown.size() > 80) shown.resize(80);
  return Refuse(node, absl::StrCat(shown, " is not supported"));
}

absl::Status CheckKeys(const JsonNode& node, std::initializer_list<const char*> known) {
  if (!node.value.is_object()) return Refuse(node, "is not an object");
  for (const auto& [key, unused] : node.value.items()) {
    if (std::ranges::find(known, std::string_view(key)) == known.end()) {
      return Refuse(node, absl::StrCat("key '", key.substr(0, 80), "' is not supported"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ReadBool(const JsonNode& node, const char* key, bool otherwise) {
  if (!node.Has(key)) return otherwise;
  const JsonNode member = node.At(key);
  if (!member.value.is_boolean()) return Refuse(member, "is not true or false");
  return member.value.get<bool>();
}

absl::StatusOr<std::string> ReadString(const JsonNode& node, const char* key) {
  if (!node.Has(key) || !node.value.at(key).is_string()) {
    return Refuse(node, absl::StrCat("'", key, "' is missing or not a string"));
  }
  return node.value.at(key).get<std::string>();
}

absl::StatusOr<std::string> ReadChar(const JsonNode& node, const char* key) {
  ASSIGN_OR_RETURN(std::string text, ReadString(node, key));
  if (text.empty() || CodePointEnd(text, 0) != text.size()) {
    return Refuse(node.At(key), "is not one character");
  }
  return text;
}

absl::StatusOr<int32_t> ReadCount(const JsonNode& node, const char* key, int32_t limit) {
  if (!node.Has(key) || !node.value.at(key).is_number_integer()) {
    return Refuse(node, absl::StrCat("'", key, "' is missing or not a count"));
  }
  return ReadBounded(node.At(key), limit);
}

absl::StatusOr<JsonNode> ReadList(const JsonNode& node, const char* key) {
  if (!node.Has(key) || !node.value.at(key).is_array()) {
    return Refuse(node, absl::StrCat("'", key, "' is missing or not a list"));
  }
  return node.At(key);
}

absl::StatusOr<int32_t> ReadId(const JsonNode& node) {
  if (!node.value.is_number_integer()) return Refuse(node, "is not an id");
  return ReadBounded(node, kMaxId);
}

absl::StatusOr<std::vector<JsonNode>> FlattenSequence(const JsonNode& node, const char* list_key) {
  if (!node.value.is_object()) return Refuse(node, "is not an object");
  ASSIGN_OR_RETURN(const std::string type, ReadString(node, "type"));
  if (type != "Sequence") return std::vector<JsonNode>{node};
  RETURN_IF_ERROR(CheckKeys(node, {"type", list_key}));
  ASSIGN_OR_RETURN(const JsonNode list, ReadList(node, list_key));
  std::vector<JsonNode> out;
  for (size_t i = 0; i < list.value.size(); ++i) {
    ASSIGN_OR_RETURN(const std::vector<JsonNode> inner, FlattenSequence(list.At(i), list_key));
    for (const JsonNode& one : inner) out.push_back({one.value, one.path});
  }
  return out;
}

}  // namespace quire
