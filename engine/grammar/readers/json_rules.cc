// Values call each other, so nesting is the stack's; strings and numbers are rules of their own, so
// that all places of a grammar share their masks.
#include "engine/grammar/readers/json_rules.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/grammar/readers/regex_reader.h"

namespace quire {
namespace {

constexpr int64_t kLargest = NumberBounds::kLargest;

// Characters that JSON writes with a letter after a backslash.
struct Escape {
  char32_t c;
  char letter;
};
constexpr Escape kEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                               {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

std::string EscapeOf(char32_t c) {
  for (const Escape& escape : kEscapes) {
    if (escape.c == c) return {'\\', escape.letter};
  }
  return absl::StrFormat("\\u%04x", static_cast<uint32_t>(c));
}

const CodeSet& Escaped() {
  static const CodeSet& set = *new CodeSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  return set;
}

}  // namespace

std::string QuoteJson(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<uint8_t>(c);
    if (code < 0x80 && Escaped().Contains(code)) {
      out += EscapeOf(code);
    } else {
      out.push_back(c);
    }
  }
  return out + "\"";
}

ExprId JsonRules::Pattern(std::string_view regex) {
  return ReadRegex(regex, {.what = "json"}, &grammar_).value();
}

ExprId JsonRules::Space() {
  if (!space_) space_ = grammar_.AddRule("whitespace", Pattern("| |\\n[ \\t]{0,32}"));
  return grammar_.Call(*space_);
}

ExprId JsonRules::Bracketed(std::string_view open, ExprId inner, std::string_view close) {
  return grammar_.Sequence({grammar_.Bytes(open), Space(), inner, Space(), grammar_.Bytes(close)});
}

ExprId JsonRules::Comma() { return grammar_.Sequence({grammar_.Bytes(","), Space()}); }

ExprId JsonRules::Member(ExprId name, ExprId value) {
  return grammar_.Sequence({name, grammar_.Bytes(":"), Space(), value});
}

ExprId JsonRules::Separated(ExprId part, uint32_t min, uint32_t max) {
  if (max == 0) return grammar_.Empty();
  const uint32_t more = max == Grammar::kUnbounded ? max : max - 1;
  const ExprId rest =
      grammar_.Repeat(grammar_.Sequence({Comma(), part}), std::max(min, 1u) - 1, more);
  const ExprId list = grammar_.Sequence({part, rest});
  return min == 0 ? grammar_.Optional(list) : list;
}

ExprId JsonRules::Value() {
  if (!value_) {
    value_ = grammar_.AddRule("value");
    grammar_.SetRule(*value_, grammar_.Choice({Object(), Array(), String(), Number(), Boolean(),
                                               grammar_.Bytes("null")}));
  }
  return grammar_.Call(*value_);
}

ExprId JsonRules::Object() {
  if (!object_) {
    object_ = grammar_.AddRule("object");
    const ExprId members = Separated(Member(String(), Value()), 0, Grammar::kUnbounded);
    grammar_.SetRule(*object_, Bracketed("{", members, "}"));
  }
  return grammar_.Call(*object_);
}

ExprId JsonRules::Array() {
  if (!array_) {
    array_ = grammar_.AddRule("array");
    grammar_.SetRule(*array_, Bracketed("[", Separated(Value(), 0, Grammar::kUnbounded), "]"));
  }
  return grammar_.Call(*array_);
}

ExprId JsonRules::String() {
  if (!string_) {
    string_ =
        grammar_.AddRule("string", Quoted(grammar_.Repeat(AnyChar(), 0, Grammar::kUnbounded)));
  }
  return grammar_.Call(*string_);
}

ExprId JsonRules::Number() {
  if (!number_) {
    number_ = grammar_.AddRule(
        "number", Pattern("-?(0|[1-9][0-9]{0,15})(\\.[0-9]{1,16})?([eE][+-]?[0-9]{1,2})?"));
  }
  return grammar_.Call(*number_);
}

ExprId JsonRules::Integer() {
  if (!integer_) integer_ = grammar_.AddRule("integer", Pattern("-?(0|[1-9][0-9]{0,15})"));
  return grammar_.Call(*integer_);
}

ExprId JsonRules::Boolean() {
  return grammar_.Choice({grammar_.Bytes("true"), grammar_.Bytes("false")});
}

ExprId JsonRules::Char(const CodeSet& members) {
  std::vector<ExprId> choices = {grammar_.Chars(members.Without(Escaped()))};
  for (char32_t c = 0; c < 0x80; ++c) {
    if (Escaped().Contains(c) && members.Contains(c))
      choices.push_back(grammar_.Bytes(EscapeOf(c)));
  }
  return grammar_.Choice(std::move(choices));
}

ExprId JsonRules::AnyChar() {
  return grammar_.Choice(
      {grammar_.Chars(Escaped().Complement()), Pattern("\\\\[\"\\\\/bfnrt]"),
       Pattern("\\\\u([0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})"),
       Pattern("\\\\u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}")});
}

ExprId JsonRules::Quoted(ExprId chars) {
  return grammar_.Sequence({grammar_.Bytes("\""), chars, grammar_.Bytes("\"")});
}

ExprId JsonRules::Literal(const nlohmann::ordered_json& value) {
  if (value.is_string()) return grammar_.Bytes(QuoteJson(value.get_ref<const std::string&>()));
  if (!value.is_structured()) return grammar_.Bytes(value.dump());
  std::vector<ExprId> parts;
  for (const auto& [name, part] : value.items()) {
    if (!parts.empty()) parts.push_back(Comma());
    parts.push_back(value.is_array() ? Literal(part)
                                     : Member(grammar_.Bytes(QuoteJson(name)), Literal(part)));
  }
  return Bracketed(value.is_array() ? "[" : "{", grammar_.Sequence(std::move(parts)),
                   value.is_array() ? "]" : "}");
}

// Splits the range at numbers of nines and zeros, until the parts are a prefix, a digit of a range,
// and any digits.
ExprId JsonRules::Digits(int64_t first, int64_t last) {
  std::vector<ExprId> choices;
  while (first <= last) {
    // The longest run of any digits that begins here and does not pass the end.
    int64_t power = 1;
    int any = 0;
    while (first > 0 && first % (power * 10) == 0 && power * 10 - 1 <= last - first) {
      power *= 10;
      ++any;
    }
    const int64_t digit = first / power % 10;
    const int64_t digits = std::min(9 - digit, (last - first - (power - 1)) / power);
    const std::string prefix = first / power >= 10 ? absl::StrCat(first / power / 10) : "";
    const auto low = static_cast<char32_t>('0' + digit);
    choices.push_back(grammar_.Sequence(
        {grammar_.Bytes(prefix), grammar_.Chars({{low, static_cast<char32_t>(low + digits)}}),
         grammar_.Repeat(grammar_.Chars({{'0', '9'}}), any, any)}));
    first += (digits + 1) * power;
  }
  return grammar_.Choice(std::move(choices));
}

ExprId JsonRules::IntegerWithin(const NumberBounds& bounds) {
  const int64_t min = bounds.min.value_or(std::min(-kLargest, bounds.max.value_or(0)));
  const int64_t max = bounds.max.value_or(std::max(kLargest, bounds.min.value_or(0)));
  std::vector<ExprId> choices;
  if (min <= max && max >= 0) choices.push_back(Digits(std::max<int64_t>(min, 0), max));
  if (min <= max && min < 0) {
    choices.push_back(
        grammar_.Sequence({grammar_.Bytes("-"), Digits(std::max<int64_t>(-max, 1), -min)}));
  }
  return grammar_.Choice(std::move(choices));
}

ExprId JsonRules::Magnitudes(const NumberBounds& bounds) {
  const int64_t min = *bounds.min, max = *bounds.max;
  const ExprId fraction = grammar_.Optional(Pattern("\\.[0-9]{1,16}"));
  std::vector<ExprId> choices;
  int64_t whole = min;
  if (bounds.excludes_min && min < max) {
    choices.push_back(grammar_.Sequence({Digits(min, min), Pattern("\\.[0-9]{0,15}[1-9]")}));
    ++whole;
  }
  if (whole < max) choices.push_back(grammar_.Sequence({Digits(whole, max - 1), fraction}));
  const bool has_max = !bounds.excludes_max && (min < max || !bounds.excludes_min);
  if (has_max && min <= max) {
    choices.push_back(grammar_.Sequence({Digits(max, max), Pattern("(\\.0{1,16})?")}));
  }
  return grammar_.Choice(std::move(choices));
}

ExprId JsonRules::NumberWithin(const NumberBounds& bounds) {
  const int64_t min = bounds.min.value_or(std::min(-kLargest, bounds.max.value_or(0)));
  const int64_t max = bounds.max.value_or(std::max(kLargest, bounds.min.value_or(0)));
  std::vector<ExprId> choices;
  if (min <= max && max >= 0) {
    choices.push_back(Magnitudes(
        {std::max<int64_t>(min, 0), max, bounds.excludes_min && min >= 0, bounds.excludes_max}));
  }
  if (min <= max && min < 0) {
    const ExprId below = Magnitudes(
        {std::max<int64_t>(-max, 0), -min, bounds.excludes_max && max <= 0, bounds.excludes_min});
    choices.push_back(grammar_.Sequence({grammar_.Bytes("-"), below}));
  }
  return grammar_.Choice(std::move(choices));
}

}  // namespace quire
