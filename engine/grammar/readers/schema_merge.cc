// Keyword by keyword; what is not known to merge is refused.
#include "engine/grammar/readers/schema_merge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json_walk.h"
#include "engine/base/status_macros.h"

namespace quire {
namespace {

// Builds a node. The innermost open one is open_.back().
class NodeBuilder : public JsonSink {
 public:
  const char* Scalar(nlohmann::json&& value) override {
    Place(SchemaNode(std::move(value)));
    return nullptr;
  }
  const char* Open(bool object) override {
    open_.push_back(Place(object ? SchemaNode::object() : SchemaNode::array()));
    names_.emplace_back();
    return nullptr;
  }
  const char* Key(std::string&& name) override {
    if (!names_.back().insert(name).second) return "duplicate key";
    name_ = std::move(name);
    return nullptr;
  }
  void Close() override {
    open_.pop_back();
    names_.pop_back();
  }
  SchemaNode Take() { return std::move(root_); }

 private:
  SchemaNode* Place(SchemaNode&& value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array()) {
      return &open_.back()->get_ref<SchemaNode::array_t&>().emplace_back(std::move(value));
    }
    // The names are unique: the map of ordered members need not be searched.
    auto& members = open_.back()->get_ref<SchemaNode::object_t&>();
    static_cast<SchemaNode::object_t::Container&>(members).emplace_back(name_, std::move(value));
    return &members.back().second;
  }

  SchemaNode root_;
  std::vector<SchemaNode*> open_;
  std::vector<absl::flat_hash_set<std::string>> names_;  // of each open node
  std::string name_;                                     // of the member that follows
};

struct KeywordType {
  std::string_view keyword, type;
};
constexpr KeywordType kKeywordTypes[] = {{"properties", "object"},
                                         {"required", "object"},
                                         {"additionalProperties", "object"},
                                         {"propertyNames", "object"},
                                         {"minProperties", "object"},
                                         {"maxProperties", "object"},
                                         {"items", "array"},
                                         {"prefixItems", "array"},
                                         {"minItems", "array"},
                                         {"maxItems", "array"},
                                         {"additionalItems", "array"},
                                         {"minLength", "string"},
                                         {"maxLength", "string"},
                                         {"pattern", "string"},
                                         {"format", "string"},
                                         {"minimum", "number"},
                                         {"maximum", "number"},
                                         {"exclusiveMinimum", "number"},
                                         {"exclusiveMaximum", "number"}};

constexpr std::array<std::string_view, 7> kTypes = {"object",  "array",   "string", "number",
                                                    "integer", "boolean", "null"};

// The values of const or enum; null if there is neither.
SchemaNode ConstantsOf(const SchemaNode& schema) {
  if (!schema.is_object()) return nullptr;
  if (schema.contains("const")) return SchemaNode::array({schema["const"]});
  if (schema.contains("enum") && schema["enum"].is_array()) return schema["enum"];
  return nullptr;
}

bool HaveCommon(const SchemaNode& a, const SchemaNode& b) {
  return std::any_of(a.begin(), a.end(), [&](const SchemaNode& value) {
    return std::find(b.begin(), b.end(), value) != b.end();
  });
}

SchemaNode Common(const SchemaNode& a, const SchemaNode& b) {
  SchemaNode out = SchemaNode::array();
  for (const SchemaNode& value : a) {
    if (std::find(b.begin(), b.end(), value) != b.end()) out.push_back(value);
  }
  return out;
}

bool Requires(const SchemaNode& schema, const std::string& name) {
  if (!schema.contains("required") || !schema["required"].is_array()) return false;
  const SchemaNode& required = schema["required"];
  return std::find(required.begin(), required.end(), name) != required.end();
}

bool Restricts(const SchemaNode& schema, const char* keyword) {
  return schema.contains(keyword) && schema[keyword] != true;
}

// additionalProperties is about all members that its own schema does not declare, those that the
// other schema declares included.
bool KeepsMembers(const SchemaNode& mine, const SchemaNode& other) {
  if (!Restricts(mine, "additionalProperties") || !other.contains("properties")) return true;
  if (!mine.contains("properties")) return false;
  for (const auto& [name, schema] : other["properties"].items()) {
    if (!mine["properties"].contains(name)) return false;
  }
  return true;
}

// As well, items is about all elements behind the prefixItems of its own schema.
bool KeepsElements(const SchemaNode& mine, const SchemaNode& other) {
  return !Restricts(mine, "items") || mine.contains("prefixItems") ||
         !other.contains("prefixItems");
}

// "nullable" adds null to the type and the constants beside it: the same schema without it.
SchemaNode NullAsType(SchemaNode schema) {
  if (!schema.contains("nullable")) return schema;
  const bool nullable = schema["nullable"] == true;
  if (nullable && !schema.contains("type")) return schema;
  schema.erase("nullable");
  if (!nullable) return schema;
  SchemaNode& type = schema["type"];
  if (!type.is_array()) type = SchemaNode::array({type});
  if (!HaveCommon(type, SchemaNode::array({"null"}))) type.push_back("null");
  if (SchemaNode constants = ConstantsOf(schema); constants.is_array()) {
    constants.push_back(nullptr);
    schema.erase("const");
    schema["enum"] = std::move(constants);
  }
  return schema;
}

// Whether the type or the constants of a schema exclude null.
bool ExcludesNull(const SchemaNode& schema) {
  const SchemaNode constants = ConstantsOf(schema);
  if (constants.is_array()) return !HaveCommon(constants, SchemaNode::array({nullptr}));
  const auto types = TypesOf(schema);
  return schema.contains("type") && std::find(types.begin(), types.end(), "null") == types.end();
}

absl::Status MergeKeyword(const std::string& keyword, const SchemaNode& value,
                          const std::string& path, SchemaNode* out) {
  const auto at = out->find(keyword);
  if (at == out->end()) {
    (*out)[keyword] = value;
    return absl::OkStatus();
  }
  SchemaNode& mine = *at;
  if (mine == value || IsAnnotation(keyword)) return absl::OkStatus();
  const bool numbers = mine.is_number() && value.is_number();
  if (numbers && (keyword.starts_with("min") || keyword == "exclusiveMinimum")) {
    if (mine < value) mine = value;
  } else if (numbers && (keyword.starts_with("max") || keyword == "exclusiveMaximum")) {
    if (value < mine) mine = value;
  } else if (keyword == "required" && mine.is_array() && value.is_array()) {
    for (const SchemaNode& name : value) {
      if (std::find(mine.begin(), mine.end(), name) == mine.end()) mine.push_back(name);
    }
  } else if (keyword == "enum" && mine.is_array() && value.is_array()) {
    mine = Common(mine, value);
  } else if (keyword == "type") {
    SchemaNode types = SchemaNode::array();
    const auto mine_types = TypesOf({{"type", mine}}), other = TypesOf({{"type", value}});
    for (const std::string& type : mine_types) {
      if (std::find(other.begin(), other.end(), type) != other.end()) types.push_back(type);
    }
    mine = types;
  } else if (keyword == "properties" && mine.is_object() && value.is_object()) {
    for (const auto& [name, schema] : value.items()) {
      if (!mine.contains(name)) {
        mine[name] = schema;
        continue;
      }
      ASSIGN_OR_RETURN(mine[name],
                       MergeSchemas(mine[name], schema, absl::StrCat(path, "/properties/", name)));
    }
  } else if (keyword == "items") {
    ASSIGN_OR_RETURN(mine, MergeSchemas(mine, value, path + "/items"));
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("schema: ", path, ": schemas with different \"", keyword,
                     "\" cannot be combined; write the one that is meant"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SchemaNode> ParseSchema(std::string_view text, int max_depth, size_t max_bytes) {
  NodeBuilder builder;
  RETURN_IF_ERROR(
      WalkJson(text, "schema", {.max_depth = max_depth, .max_bytes = max_bytes}, &builder));
  return builder.Take();
}

bool IsAnnotation(std::string_view keyword) {
  static const auto& keywords = *new absl::flat_hash_set<std::string_view>{
      "title",      "description",  "default",     "examples",        "example",
      "$schema",    "$id",          "id",          "$comment",        "$defs",
      "readOnly",   "writeOnly",    "definitions", "contentEncoding", "contentMediaType",
      "deprecated", "discriminator"};
  return keywords.contains(keyword) || keyword.starts_with("x-");
}

std::vector<std::string> TypesOf(const SchemaNode& schema) {
  std::vector<std::string> types;
  const auto add = [&](const std::string& type) {
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  };
  if (schema.is_object() && schema.contains("type")) {
    const SchemaNode& type = schema["type"];
    for (const SchemaNode& each : type.is_array() ? type : SchemaNode::array({type})) {
      if (!each.is_string()) continue;
      add(each.get<std::string>());
      if (each == "number") add("integer");
    }
    return types;
  }
  if (schema.is_object()) {
    for (const auto& [keyword, type] : kKeywordTypes) {
      if (schema.contains(keyword)) add(std::string(type));
    }
  }
  if (std::find(types.begin(), types.end(), "number") != types.end()) add("integer");
  if (types.empty()) types.assign(kTypes.begin(), kTypes.end());
  return types;
}

bool HasType(const SchemaNode& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  const bool integral =
      value.is_number_integer() ||
      (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
  return type == "number" ? value.is_number() : type == "integer" && integral;
}

absl::StatusOr<SchemaNode> MergeSchemas(const SchemaNode& a, const SchemaNode& b,
                                        const std::string& path) {
  if (a == true) return b;
  if (b == true) return a;
  if (a == false || b == false) return SchemaNode(false);
  if (!a.is_object() || !b.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("schema: ", path, ": must be an object or a boolean"));
  }
  if (!KeepsMembers(a, b) || !KeepsMembers(b, a)) {
    return absl::InvalidArgumentError(
        absl::StrCat("schema: ", path,
                     ": additionalProperties is about the other schema's properties, too; "
                     "write one schema of both"));
  }
  if (!KeepsElements(a, b) || !KeepsElements(b, a)) {
    return absl::InvalidArgumentError(
        absl::StrCat("schema: ", path,
                     ": items is about the other schema's prefixItems, too; write one schema "
                     "of both"));
  }
  SchemaNode out = NullAsType(a);
  const SchemaNode other = NullAsType(b);
  const bool excludes_null = ExcludesNull(out) || ExcludesNull(other);
  for (const auto& [keyword, value] : other.items()) {
    RETURN_IF_ERROR(MergeKeyword(keyword, value, path, &out));
  }
  if (excludes_null) out.erase("nullable");
  return out;
}

bool AreDisjoint(const SchemaNode& a, const SchemaNode& b) {
  const SchemaNode mine = ConstantsOf(a), other = ConstantsOf(b);
  if (mine.is_array() && other.is_array()) return !HaveCommon(mine, other);
  const auto fits = [](const SchemaNode& values, const std::vector<std::string>& types) {
    return std::any_of(values.begin(), values.end(), [&](const SchemaNode& value) {
      return std::any_of(types.begin(), types.end(),
                         [&](const std::string& type) { return HasType(value, type); });
    });
  };
  if (mine.is_array() && !fits(mine, TypesOf(b))) return true;
  if (other.is_array() && !fits(other, TypesOf(a))) return true;
  // Keywords that only suggest a type allow all others, as far as the standard goes; this server
  // writes the suggested one. A document of another type would match neither branch here.
  const auto types = TypesOf(a), others = TypesOf(b);
  const bool common = std::any_of(types.begin(), types.end(), [&](const std::string& type) {
    return std::find(others.begin(), others.end(), type) != others.end();
  });
  if (!common) return true;
  if (!a.is_object() || !b.is_object() || !a.contains("properties") || !b.contains("properties")) {
    return false;
  }
  for (const auto& [name, schema] : a["properties"].items()) {
    if (!b["properties"].contains(name) || !Requires(a, name) || !Requires(b, name)) continue;
    const SchemaNode one = ConstantsOf(schema), two = ConstantsOf(b["properties"][name]);
    if (one.is_array() && two.is_array() && !HaveCommon(one, two)) return true;
  }
  return false;
}

}  // namespace quire
