// Subschemas become rules; a reference is a call, so recursion costs nothing. Members stand in the
// order of "properties"; members that only "required" names, and others, come after them.
#include "engine/grammar/readers/schema_reader.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/readers/json_rules.h"
#include "engine/grammar/readers/schema_merge.h"
#include "engine/grammar/readers/schema_strings.h"

namespace quire {
namespace {

bool IsKeyword(std::string_view keyword) {
  static const auto& keywords = *new absl::flat_hash_set<std::string_view>{
      "type",          "enum",          "const",     "properties",       "required",
      "minProperties", "maxProperties", "items",     "prefixItems",      "additionalProperties",
      "minItems",      "maxItems",      "minLength", "additionalItems",  "maxLength",
      "pattern",       "format",        "minimum",   "exclusiveMinimum", "maximum",
      "anyOf",         "oneOf",         "allOf",     "exclusiveMaximum", "$ref",
      "nullable"};
  return keywords.contains(keyword);
}

// Names of members are strings anyway.
bool AllowsAllNames(const SchemaNode& names) {
  if (!names.is_object()) return names == true;
  for (const auto& [keyword, value] : names.items()) {
    if (!IsAnnotation(keyword) && (keyword != "type" || value != "string")) return false;
  }
  return true;
}

// The fragment of a URI without its escapes: "<" for %3C.
std::string DecodePercent(std::string_view fragment) {
  std::string out;
  for (size_t i = 0; i < fragment.size(); ++i) {
    const std::string digits(fragment.substr(i + 1, 2));
    const bool escape = fragment[i] == '%' && digits.size() == 2 &&
                        std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit);
    out += escape ? absl::HexStringToBytes(digits) : std::string(1, fragment[i]);
    if (escape) i += 2;
  }
  return out;
}

class SchemaReader {
 public:
  SchemaReader(const SchemaNode& root, WorkMeter* meter, Grammar* grammar)
      : root_(root),
        meter_(*meter),
        grammar_(*grammar),
        json_(grammar),
        strings_(grammar, &json_, meter) {}

  absl::StatusOr<RuleId> Read() { return RuleOfReference("#", "#"); }

 private:
  using Result = absl::StatusOr<ExprId>;

  absl::Status Error(const std::string& path, const std::string& reason) const {
    return absl::InvalidArgumentError(absl::StrCat("schema: ", path, ": ", reason));
  }

  // Counts a step of reading, which copies at most a schema.
  absl::Status Step(const SchemaNode& schema) {
    meter_.Spend(500 + 20 * schema.size());
    if (grammar_.num_rules() > meter_.limits().max_rules) {
      return absl::InvalidArgumentError(
          absl::StrCat("schema: more than ", meter_.limits().max_rules, " subschemas"));
    }
    return meter_.status();
  }

  absl::StatusOr<const SchemaNode*> Resolve(const std::string& reference,
                                            const std::string& path) const {
    const SchemaNode* at = &root_;
    if (!reference.starts_with('#')) {
      return Error(path + "/$ref", "only references within the document (#/...) are supported");
    }
    if (reference.size() == 1) return at;
    if (reference[1] != '/') return Error(path + "/$ref", "anchors are not supported");
    const std::string pointer = DecodePercent(reference.substr(2));
    for (const std::string& part : std::vector<std::string>(absl::StrSplit(pointer, '/'))) {
      const std::string name =
          absl::StrReplaceAll(absl::StrReplaceAll(part, {{"~1", "/"}}), {{"~0", "~"}});
      if (at->is_object() && at->contains(name)) {
        at = &(*at)[name];
        continue;
      }
      size_t index = 0;
      if (!at->is_array() || !absl::SimpleAtoi(name, &index) || index >= at->size()) {
        return Error(path + "/$ref", absl::StrCat("nothing stands at ", reference));
      }
      at = &(*at)[index];
    }
    return at;
  }

  absl::StatusOr<RuleId> RuleOfReference(const std::string& reference, const std::string& path) {
    if (const auto at = references_.find(reference); at != references_.end()) return at->second;
    ASSIGN_OR_RETURN(const SchemaNode* const schema, Resolve(reference, path));
    if (references_.size() >= meter_.limits().max_rules) return Step(*schema);
    const RuleId rule = grammar_.AddRule(absl::StrCat("schema ", reference));
    references_[reference] = rule;
    if (++reference_depth_ > 4 * meter_.limits().max_depth) {
      return Error(path, "references are nested too deep");
    }
    ASSIGN_OR_RETURN(const ExprId body, Schema(*schema, reference, 0));
    --reference_depth_;
    grammar_.SetRule(rule, body);
    return rule;
  }

  Result Schema(const SchemaNode& schema, const std::string& path, int depth) {
    RETURN_IF_ERROR(Step(schema));
    if (depth > meter_.limits().max_depth) {
      return Error(path, "schemas are combined too deep, or in a circle");
    }
    if (schema == true) return json_.Value();
    if (schema == false) return grammar_.Never();
    if (!schema.is_object()) return Error(path, "must be an object or a boolean");
    for (const auto& [keyword, value] : schema.items()) {
      const bool names = keyword == "propertyNames" && AllowsAllNames(value);
      if (!names && !IsKeyword(keyword) && !IsAnnotation(keyword)) {
        return Error(absl::StrCat(path, "/", keyword), "this keyword is not supported");
      }
    }
    if (schema.contains("nullable")) return Nullable(schema, path, depth);
    for (const char* keyword : {"$ref", "allOf"}) {
      if (schema.contains(keyword)) return Combined(schema, keyword, path, depth);
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (schema.contains(keyword)) return Alternatives(schema, keyword, path, depth);
    }
    if (schema.contains("const") || schema.contains("enum")) return Constants(schema, path);
    return Types(schema, path, depth);
  }

  Result Nullable(SchemaNode schema, const std::string& path, int depth) {
    const bool nullable = schema["nullable"] == true;
    schema.erase("nullable");
    ASSIGN_OR_RETURN(const ExprId expr, Schema(schema, path, depth + 1));
    return nullable ? grammar_.Choice({expr, grammar_.Bytes("null")}) : expr;
  }

  static bool Restricts(const SchemaNode& schema) {
    for (const auto& [keyword, value] : schema.items()) {
      if (!IsAnnotation(keyword)) return true;
    }
    return false;
  }

  // "$ref" or "allOf" with the keywords beside it.
  Result Combined(SchemaNode schema, const std::string& keyword, const std::string& path,
                  int depth) {
    SchemaNode parts = schema[keyword];
    schema.erase(keyword);
    if (keyword == "$ref") {
      if (!parts.is_string()) return Error(path + "/$ref", "must be a string");
      if (!Restricts(schema)) {
        ASSIGN_OR_RETURN(const RuleId rule, RuleOfReference(parts.get<std::string>(), path));
        return grammar_.Call(rule);
      }
      parts = SchemaNode::array({{{"$ref", parts}}});
    }
    if (!parts.is_array() || parts.empty()) return Error(path + "/allOf", "must be a list");
    for (SchemaNode part : parts) {
      // A reference stands for its target, which may refer on.
      for (int steps = 0; part.is_object() && part.contains("$ref"); ++steps) {
        if (steps > meter_.limits().max_depth || !part["$ref"].is_string()) {
          return Error(path + "/$ref", "references go in a circle");
        }
        ASSIGN_OR_RETURN(const SchemaNode* const target,
                         Resolve(part["$ref"].get<std::string>(), path));
        part.erase("$ref");
        ASSIGN_OR_RETURN(part, MergeSchemas(*target, part, path));
        RETURN_IF_ERROR(Step(part));
      }
      ASSIGN_OR_RETURN(schema, MergeSchemas(schema, part, path));
      RETURN_IF_ERROR(Step(schema));
    }
    return Schema(schema, path, depth + 1);
  }

  // "anyOf" or "oneOf" with the keywords beside it.
  Result Alternatives(SchemaNode schema, const std::string& keyword, const std::string& path,
                      int depth) {
    const SchemaNode branches = schema[keyword];
    const std::string at = absl::StrCat(path, "/", keyword);
    schema.erase(keyword);
    if (!branches.is_array() || branches.empty()) return Error(at, "must be a list");
    if (keyword == "oneOf") RETURN_IF_ERROR(CheckDisjoint(branches, at));
    std::vector<ExprId> choices;
    for (size_t i = 0; i < branches.size(); ++i) {
      SchemaNode branch = branches[i];
      if (Restricts(schema)) {
        const bool refers = branch.is_object() && branch.contains("$ref");
        if (refers) branch = {{"allOf", SchemaNode::array({branch})}};
        ASSIGN_OR_RETURN(branch, MergeSchemas(schema, branch, at));
      }
      ASSIGN_OR_RETURN(const ExprId choice, Schema(branch, absl::StrCat(at, "/", i), depth + 1));
      choices.push_back(choice);
    }
    return grammar_.Choice(std::move(choices));
  }

  absl::Status CheckDisjoint(const SchemaNode& branches, const std::string& path) {
    std::vector<SchemaNode> resolved;
    for (SchemaNode branch : branches) {
      for (int i = 0; i < 8 && branch.is_object() && branch.contains("$ref"); ++i) {
        if (!branch["$ref"].is_string()) return Error(path, "$ref must be a string");
        ASSIGN_OR_RETURN(const SchemaNode* const target,
                         Resolve(branch["$ref"].get<std::string>(), path));
        branch = SchemaNode(*target);
      }
      resolved.push_back(std::move(branch));
    }
    for (size_t i = 0; i < resolved.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        RETURN_IF_ERROR(Step(resolved[i]));
        if (AreDisjoint(resolved[i], resolved[j])) continue;
        return Error(path, absl::StrCat("branches ", j, " and ", i,
                                        " may have a document in common; use anyOf, or give them "
                                        "different types or constants"));
      }
    }
    return absl::OkStatus();
  }

  Result Constants(const SchemaNode& schema, const std::string& path) {
    SchemaNode values = SchemaNode::array();
    if (schema.contains("enum")) {
      values = schema["enum"];
      if (!values.is_array()) return Error(path + "/enum", "must be a list");
    }
    if (schema.contains("const")) {
      const SchemaNode& constant = schema["const"];
      const bool listed = !schema.contains("enum") ||
                          std::find(values.begin(), values.end(), constant) != values.end();
      values = SchemaNode::array();
      if (listed) values.push_back(constant);
    }
    for (const auto& [keyword, value] : schema.items()) {
      if (keyword == "type" || keyword == "enum" || keyword == "const") continue;
      if (IsAnnotation(keyword)) continue;
      return Error(absl::StrCat(path, "/", keyword), "not supported beside enum or const");
    }
    const std::vector<std::string> types = TypesOf(schema);
    std::vector<ExprId> choices;
    for (const SchemaNode& value : values) {
      const bool fits = std::any_of(types.begin(), types.end(),
                                    [&](const std::string& type) { return HasType(value, type); });
      if (fits) choices.push_back(json_.Literal(value));
    }
    return grammar_.Choice(std::move(choices));
  }

  Result Types(const SchemaNode& schema, const std::string& path, int depth) {
    if (!Restricts(schema)) return json_.Value();
    const std::vector<std::string> types = TypesOf(schema);
    std::vector<ExprId> choices;
    for (const std::string& type : types) {
      const bool has_number = std::find(types.begin(), types.end(), "number") != types.end();
      if (type == "integer" && has_number) continue;  // a part of number
      ASSIGN_OR_RETURN(const ExprId choice, OfType(type, schema, path, depth));
      choices.push_back(choice);
    }
    return grammar_.Choice(std::move(choices));
  }

  Result OfType(const std::string& type, const SchemaNode& schema, const std::string& path,
                int depth) {
    if (type == "null") return grammar_.Bytes("null");
    if (type == "boolean") return json_.Boolean();
    if (type == "integer" || type == "number") return Number(type == "integer", schema, path);
    Result body = type == "string"   ? strings_.Read(schema, path)
                  : type == "object" ? Object(schema, path, depth)
                  : type == "array"  ? Array(schema, path, depth)
                                     : Result(Error(path + "/type", "there is no type " + type));
    if (!body.ok()) return body;
    // A rule of its own: what follows it does not multiply its states.
    return grammar_.expr(*body).kind == Expr::Kind::kCall
               ? *body
               : grammar_.Call(grammar_.AddRule(absl::StrCat("schema ", path), *body));
  }

  Result Number(bool integer, const SchemaNode& schema, const std::string& path) {
    NumberBounds bounds;
    for (const bool upper : {false, true}) {
      for (const bool exclusive : {false, true}) {
        const std::string keyword = exclusive ? (upper ? "exclusiveMaximum" : "exclusiveMinimum")
                                              : (upper ? "maximum" : "minimum");
        if (!schema.contains(keyword)) continue;
        const std::string at = absl::StrCat(path, "/", keyword);
        ASSIGN_OR_RETURN(const std::optional<Bound> bound,
                         ReadBound(schema[keyword], integer, upper, exclusive, at));
        if (!bound) continue;
        auto& mine = upper ? bounds.max : bounds.min;
        auto& excludes = upper ? bounds.excludes_max : bounds.excludes_min;
        const bool tighter = !mine || (upper ? bound->limit < *mine : bound->limit > *mine);
        if (tighter || (bound->limit == *mine && bound->excluded)) excludes = bound->excluded;
        if (tighter) mine = bound->limit;
      }
    }
    const bool bounded = bounds.min || bounds.max;
    if (!bounded) return integer ? json_.Integer() : json_.Number();
    return integer ? json_.IntegerWithin(bounds) : json_.NumberWithin(bounds);
  }

  struct Bound {
    int64_t limit;
    bool excluded;
  };

  // Nothing for a bound that all numbers of a text keep.
  absl::StatusOr<std::optional<Bound>> ReadBound(const SchemaNode& value, bool integer, bool upper,
                                                 bool exclusive, const std::string& at) const {
    constexpr int64_t kLargest = NumberBounds::kLargest;
    if (!value.is_number()) return Error(at, "must be a number");
    const auto number = value.get<double>();
    const double whole = upper ? std::floor(number) : std::ceil(number);
    if (!integer && whole != number) {
      return Error(at, "bounds of numbers are supported if they are integers");
    }
    bool far = std::abs(number) > 1e16;  // kLargest as a double
    int64_t limit = 0;
    const bool excluded = exclusive && whole == number;
    if (!far) {
      // Doubles lack every second integer beyond 2^53.
      limit = value.is_number_integer() ? value.get<int64_t>() : static_cast<int64_t>(whole);
      // For integers an excluded bound is the next integer.
      if (integer && excluded) limit += upper ? -1 : 1;
      far = limit > kLargest || limit < -kLargest;
    }
    if (!far) return Bound{limit, !integer && excluded};
    if (upper != (number > 0)) return Error(at, "no number of 16 digits is beyond it");
    // A number with an exponent of 99 is below 1e115. A nearer bound allows none with an exponent.
    if (integer || std::abs(number) >= 1e115) return std::nullopt;
    return Bound{upper ? kLargest : -kLargest, false};
  }

  Result Array(const SchemaNode& schema, const std::string& path, int depth) {
    constexpr size_t kMaxPrefix = 256;
    ASSIGN_OR_RETURN(const uint32_t min, CountOf(schema, "minItems", 0, path));
    ASSIGN_OR_RETURN(const uint32_t max, CountOf(schema, "maxItems", Grammar::kUnbounded, path));
    const bool old = schema.contains("items") && schema["items"].is_array();
    const char* prefix_name = old ? "items" : "prefixItems";
    const char* rest_name = old ? "additionalItems" : "items";
    const SchemaNode prefix =
        schema.contains(prefix_name) ? schema[prefix_name] : SchemaNode::array();
    if (!prefix.is_array() || prefix.size() > kMaxPrefix) {
      return Error(absl::StrCat(path, "/", prefix_name), "must be a list of at most 256 schemas");
    }
    const bool none = prefix.empty();
    SchemaNode rest = schema.contains(rest_name) ? schema[rest_name] : SchemaNode(none);
    ASSIGN_OR_RETURN(const ExprId item,
                     Schema(rest, absl::StrCat(path, "/", rest_name), depth + 1));
    if (none) return json_.Bracketed("[", json_.Separated(item, min, max), "]");

    // From the last to the first: each with what may follow it.
    const auto size = static_cast<uint32_t>(prefix.size());
    const ExprId more = grammar_.Sequence({json_.Comma(), item});
    ExprId list = grammar_.Empty();
    if (max > size && rest != false) {
      const uint32_t most = max == Grammar::kUnbounded ? max : max - size;
      list = grammar_.Repeat(more, min > size ? min - size : 0, most);
    } else if (min > size) {
      list = grammar_.Never();
    }
    for (uint32_t i = size; i-- > 0;) {
      const std::string at = absl::StrCat(path, "/", prefix_name, "/", i);
      ASSIGN_OR_RETURN(const ExprId element, Schema(prefix[i], at, depth + 1));
      if (i >= max) {
        list = grammar_.Empty();
        continue;
      }
      list = i == 0 ? grammar_.Sequence({element, list})
                    : grammar_.Sequence({json_.Comma(), element, list});
      if (i >= min) list = grammar_.Optional(list);
    }
    return json_.Bracketed("[", list, "]");
  }

  Result Object(const SchemaNode& schema, const std::string& path, int depth) {
    std::vector<std::string> names, required;
    if (schema.contains("required")) {
      if (!schema["required"].is_array()) return Error(path + "/required", "must be a list");
      for (const SchemaNode& name : schema["required"]) {
        if (!name.is_string()) return Error(path + "/required", "must be a list of strings");
        required.push_back(name);
      }
    }
    const absl::flat_hash_set<std::string> is_required(required.begin(), required.end());
    const SchemaNode properties =
        schema.contains("properties") ? schema["properties"] : SchemaNode::object();
    if (!properties.is_object()) return Error(path + "/properties", "must be an object");
    // Without properties, any members; with them, only those, unless the schema says otherwise.
    const SchemaNode others = schema.contains("additionalProperties")
                                  ? schema["additionalProperties"]
                                  : SchemaNode(properties.empty());
    const std::string others_path = path + "/additionalProperties";
    ASSIGN_OR_RETURN(const ExprId other, Schema(others, others_path, depth + 1));
    std::vector<ExprId> parts;
    std::vector<bool> needed;
    const auto add = [&](const std::string& name, ExprId value) {
      names.push_back(name);
      parts.push_back(json_.Member(grammar_.Bytes(QuoteJson(name)), value));
      needed.push_back(is_required.contains(name));
    };
    for (const auto& [name, property] : properties.items()) {
      ASSIGN_OR_RETURN(const ExprId value,
                       Schema(property, absl::StrCat(path, "/properties/", name), depth + 1));
      add(name, value);
    }
    for (const std::string& name : required) {
      if (properties.contains(name) || std::find(names.begin(), names.end(), name) != names.end()) {
        continue;
      }
      if (schema.contains("additionalProperties") && others == false) {
        return Error(path + "/required",
                     absl::StrCat("additionalProperties is false, and properties has no \"", name,
                                  "\"; declare it"));
      }
      // Where the schema does not speak of other members, the standard allows any.
      add(name, others == false ? json_.Value() : other);
    }
    return Members(schema, path,
                   {std::move(names), std::move(parts), std::move(needed),
                    others == false ? std::nullopt : std::optional(other)});
  }

  struct ObjectParts {
    std::vector<std::string> names;
    std::vector<ExprId> parts;  // of each name
    std::vector<bool> needed;   // of each name
    std::optional<ExprId> other;
  };

  Result Members(const SchemaNode& schema, const std::string& path, ObjectParts object) {
    ASSIGN_OR_RETURN(const uint32_t min, CountOf(schema, "minProperties", 0, path));
    ASSIGN_OR_RETURN(const uint32_t max,
                     CountOf(schema, "maxProperties", Grammar::kUnbounded, path));
    if (object.names.empty() && object.other) {
      const bool plain = grammar_.expr(*object.other).kind == Expr::Kind::kCall && min == 0 &&
                         max == Grammar::kUnbounded && !schema.contains("additionalProperties");
      if (plain) return json_.Object();
      // Names may repeat, so a count of names would not be one of members.
      if (min > 1) return Error(path + "/minProperties", "above 1 is not supported");
      const ExprId member = json_.Member(json_.String(), *object.other);
      return json_.Bracketed("{", json_.Separated(member, min, max), "}");
    }
    const auto num_needed =
        static_cast<uint32_t>(std::count(object.needed.begin(), object.needed.end(), true));
    if (min > num_needed) {
      return Error(path + "/minProperties", "above the required members is not supported");
    }
    if (max < object.names.size() || (max != Grammar::kUnbounded && object.other)) {
      return Error(path + "/maxProperties", "below the possible members is not supported");
    }
    if (object.other) {
      const ExprId member = json_.Member(strings_.NameExcept(object.names), *object.other);
      RETURN_IF_ERROR(meter_.status());
      object.parts.push_back(json_.Separated(member, 1, Grammar::kUnbounded));
      object.needed.push_back(false);
    }
    return json_.Bracketed(
        "{", grammar_.List(json_.Comma(), std::move(object.parts), std::move(object.needed)), "}");
  }

  const SchemaNode& root_;
  WorkMeter& meter_;
  Grammar& grammar_;
  JsonRules json_;
  SchemaStrings strings_;
  absl::flat_hash_map<std::string, RuleId> references_;
  int reference_depth_ = 0;
};

}  // namespace

absl::StatusOr<RuleId> ReadSchema(std::string_view text, WorkMeter* meter, Grammar* grammar) {
  const GuideLimits& limits = meter->limits();
  ASSIGN_OR_RETURN(const SchemaNode root,
                   ParseSchema(text, limits.max_depth, limits.max_source_bytes));
  return SchemaReader(root, meter, grammar).Read();
}

}  // namespace quire
