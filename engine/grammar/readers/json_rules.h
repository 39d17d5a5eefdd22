// JsonRules: the rules of JSON texts that schemas and "any JSON" share.
//
// Whitespace stands after "{", "[", "," and ":" and before "}" and "]": nothing, one space, or a
// line feed and up to 32 spaces and tabs. Numbers have at most 16 digits before and after the
// point, and 2 in the exponent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/rules/grammar.h"
#include "nlohmann/json.hpp"

namespace quire {

// Bounds of a number; those of an integer are included. Neither is beyond kLargest.
struct NumberBounds {
  // What 16 digits before the point can say.
  static constexpr int64_t kLargest = 9'999'999'999'999'999;

  std::optional<int64_t> min, max;
  bool excludes_min = false, excludes_max = false;
};

// Makes each rule when it is first asked for. The grammar outlives it.
class JsonRules {
 public:
  explicit JsonRules(Grammar* grammar) : grammar_(*grammar) {}

  ExprId Space();   // whitespace
  ExprId Value();   // any value
  ExprId Object();  // any object
  ExprId Array();
  ExprId String();
  ExprId Number();
  ExprId Integer();
  ExprId Boolean();

  // One character of a string that is a member, as JSON must write it: with the shortest escape
  // where it needs one.
  ExprId Char(const CodeSet& members);
  // One character of a string with every escape that JSON has.
  ExprId AnyChar();
  ExprId Quoted(ExprId chars);
  // Exactly this value, with whitespace where there may be some.
  ExprId Literal(const nlohmann::ordered_json& value);
  // Members or elements between brackets: `inner` between `open` and `close`.
  ExprId Bracketed(std::string_view open, ExprId inner, std::string_view close);
  ExprId Comma();
  // "NAME": VALUE
  ExprId Member(ExprId name, ExprId value);
  // min to max of `part`, with commas.
  ExprId Separated(ExprId part, uint32_t min, uint32_t max);
  ExprId IntegerWithin(const NumberBounds& bounds);
  ExprId NumberWithin(const NumberBounds& bounds);

 private:
  ExprId Pattern(std::string_view regex);
  ExprId Digits(int64_t first, int64_t last);  // a number of the range, 0 <= first
  // The numbers of the bounds with a sign, whose bounds are those of the number without it.
  ExprId Magnitudes(const NumberBounds& bounds);

  Grammar& grammar_;
  std::optional<RuleId> space_, value_, object_, array_, string_, number_, integer_;
};

// How a JSON text quotes `text`.
std::string QuoteJson(std::string_view text);

}  // namespace quire
