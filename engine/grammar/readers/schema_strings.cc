// Patterns and formats describe the value of a string; the text writes it as JSON does.
#include "engine/grammar/readers/schema_strings.h"

#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/readers/regex_reader.h"
#include "engine/grammar/rules/automaton_builder.h"

namespace quire {
namespace {

// Whole values, stricter than the standards where those need more than a pattern: no 29 February,
// years from 1000, full IPv6 addresses, hosts of ASCII.
const absl::flat_hash_map<std::string, std::string>& Formats() {
  static const std::string date =
      "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|"
      "(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))";
  static const std::string time =
      "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]"
      ")";
  static const std::string label = "[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?";
  static const std::string host = label + "(\\." + label + "){0,5}";
  static const std::string octet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  static const auto& formats = *new absl::flat_hash_map<std::string, std::string>{
      {"date", date},
      {"time", time},
      {"date-time", date + "T" + time},
      {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
      {"ipv4", octet + "(\\." + octet + "){3}"},
      {"ipv6", "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}"},
      {"hostname", host},
      {"email", "[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,32}){0,3}@" + host},
      {"uri", "https?://" + host + "(:[1-9][0-9]{1,3})?(/[A-Za-z0-9._~-]{0,64}){0,8}"},
  };
  return formats;
}

absl::Status Error(const std::string& path, const std::string& reason) {
  return absl::InvalidArgumentError(absl::StrCat("schema: ", path, ": ", reason));
}

}  // namespace

absl::StatusOr<uint32_t> CountOf(const SchemaNode& schema, const std::string& keyword,
                                 uint32_t fallback, const std::string& path) {
  if (!schema.contains(keyword)) return fallback;
  const SchemaNode& value = schema[keyword];
  const bool counts = value.is_number() && value.get<double>() >= 0 && value.get<double>() < 4e9 &&
                      HasType(value, "integer");
  if (!counts) return Error(path + "/" + keyword, "must be an integer from 0 to 4000000000");
  return static_cast<uint32_t>(value.get<double>());
}

absl::StatusOr<ExprId> SchemaStrings::Both(ExprId left, ExprId right) {
  AutomatonBuilder builder(grammar_, &meter_, /*counts=*/false);
  const auto first = builder.Build(left);
  const auto second = builder.Build(right);
  if (first == nullptr || second == nullptr) return meter_.status();
  auto both = Intersection(*first, *second, /*except=*/false, &meter_);
  if (both == nullptr) return meter_.status();
  return grammar_.Accepted(std::move(both));
}

absl::StatusOr<ExprId> SchemaStrings::Within(ExprId text, uint32_t min, uint32_t max) {
  if (min == 0 && max == Grammar::kUnbounded) return text;
  return Both(text, grammar_.Repeat(json_.Char(CodeSet().Complement()), min, max));
}

absl::StatusOr<ExprId> SchemaStrings::Matches(const std::string& regex, bool search,
                                              const std::string& at) {
  return ReadRegex(regex,
                   {.what = "schema: " + at,
                    .max_depth = meter_.limits().max_depth,
                    .search = search,
                    .write = [this](const CodeSet& set) { return json_.Char(set); }},
                   &grammar_);
}

absl::StatusOr<ExprId> SchemaStrings::Read(const SchemaNode& schema, const std::string& path) {
  ASSIGN_OR_RETURN(const uint32_t min, CountOf(schema, "minLength", 0, path));
  ASSIGN_OR_RETURN(const uint32_t max, CountOf(schema, "maxLength", Grammar::kUnbounded, path));
  if (min > max) return Error(path + "/minLength", "is above maxLength");
  std::optional<ExprId> text;
  for (const std::string keyword : {"pattern", "format"}) {
    if (!schema.contains(keyword)) continue;
    const std::string at = absl::StrCat(path, "/", keyword);
    if (!schema[keyword].is_string()) return Error(at, "must be a string");
    std::string regex = schema[keyword].get<std::string>();
    if (keyword == "format") {
      const auto format = Formats().find(regex);
      // A pattern says what the generator of the schema means by a format of its own.
      if (format == Formats().end() && text) continue;
      if (format == Formats().end()) {
        return Error(at,
                     "this format is not supported; supported are date, time, date-time, uuid, "
                     "ipv4, ipv6, hostname, email and uri, and others beside a pattern");
      }
      regex = format->second;
    }
    ASSIGN_OR_RETURN(ExprId matches, Matches(regex, keyword == "pattern", at));
    if (text) {
      ASSIGN_OR_RETURN(matches, Both(*text, matches));
    }
    text = matches;
  }
  if (!text && min == 0 && max == Grammar::kUnbounded) return json_.String();
  if (!text) return json_.Quoted(grammar_.Repeat(json_.AnyChar(), min, max));
  ASSIGN_OR_RETURN(const ExprId within, Within(*text, min, max));
  return json_.Quoted(within);
}

ExprId SchemaStrings::NameExcept(const std::vector<std::string>& names) {
  std::vector<ExprId> taken;
  for (const std::string& name : names) {
    const std::string quoted = QuoteJson(name);
    taken.push_back(grammar_.Bytes(quoted.substr(1, quoted.size() - 2)));
  }
  AutomatonBuilder builder(grammar_, &meter_, /*counts=*/false);
  const auto any =
      builder.Build(grammar_.Repeat(json_.Char(CodeSet().Complement()), 0, Grammar::kUnbounded));
  const auto except = builder.Build(grammar_.Choice(std::move(taken)));
  if (any == nullptr || except == nullptr) return grammar_.Never();
  auto rest = Intersection(*any, *except, /*except=*/true, &meter_);
  return rest == nullptr ? grammar_.Never() : json_.Quoted(grammar_.Accepted(std::move(rest)));
}

}  // namespace quire
