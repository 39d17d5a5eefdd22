// SchemaStrings: the strings of a JSON Schema, by length, pattern and format.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/grammar/readers/json_rules.h"
#include "engine/grammar/readers/schema_merge.h"
#include "engine/grammar/rules/guide_limits.h"

namespace quire {

// All outlive the object.
class SchemaStrings {
 public:
  SchemaStrings(Grammar* grammar, JsonRules* json, WorkMeter* meter)
      : grammar_(*grammar), json_(*json), meter_(*meter) {}

  // The quoted strings that minLength, maxLength, pattern and format of `schema` allow; errors name
  // `path`.
  absl::StatusOr<ExprId> Read(const SchemaNode& schema, const std::string& path);
  // A quoted name that is none of `names`: only the escapes that a name needs, so that no name is
  // written in two ways. 0 states beyond a limit: the meter says so.
  ExprId NameExcept(const std::vector<std::string>& names);

 private:
  // The texts of a regular expression; errors name `at`.
  absl::StatusOr<ExprId> Matches(const std::string& regex, bool search, const std::string& at);
  absl::StatusOr<ExprId> Within(ExprId text, uint32_t min, uint32_t max);
  absl::StatusOr<ExprId> Both(ExprId left, ExprId right);

  Grammar& grammar_;
  JsonRules& json_;
  WorkMeter& meter_;
};

// A count of a schema: `fallback` if the keyword is absent.
absl::StatusOr<uint32_t> CountOf(const SchemaNode& schema, const std::string& keyword,
                                 uint32_t fallback, const std::string& path);

}  // namespace quire
