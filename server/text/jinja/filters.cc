// The table of filters, and those of single values and text.
#include "server/text/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/filter_call.h"
#include "server/text/jinja/values/charges.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/jinja/values/fault.h"
#include "server/text/jinja/values/format.h"
#include "server/text/jinja/values/methods.h"
#include "server/text/jinja/values/printf.h"
#include "server/text/jinja/values/text.h"
#include "server/text/unicode/unicode.h"

namespace quire::jinja {

std::string FilterCall::Text(size_t i, const std::string& otherwise) const {
  return Has(i) ? ToString(*arguments[i]) : otherwise;
}

absl::StatusOr<int64_t> FilterCall::Int(size_t i, int64_t otherwise) const {
  if (!Has(i)) return otherwise;
  if (!arguments[i]->AsInt().has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an integer is needed, not ", arguments[i]->TypeName()));
  }
  return *arguments[i]->AsInt();
}

namespace {

using Result = absl::StatusOr<Value>;

Result Trim(const FilterCall& call) {
  const std::string text = ToString(call.value);
  if (call.Has(0) && !call.arguments[0]->is_string()) return Fault("trim needs characters");
  return Value::Of(std::string(call.Has(0) ? Strip(text, Side::kBoth, call.arguments[0]->string())
                                           : Strip(text, Side::kBoth)),
                   call.value.is_safe());
}

Result Length(const FilterCall& call) {
  ASSIGN_OR_RETURN(const int64_t length, LengthOf(call.value));
  if (length < 0) return Fault(call.value.TypeName(), " has no length");
  return Value::Of(length);
}

Result Default(const FilterCall& call) {
  const bool missing = call.value.is_undefined() || (call.Flag(1) && !call.value.IsTrue());
  if (!missing) return call.value;
  return call.arguments[0] == nullptr ? Value::Of("") : *call.arguments[0];
}

// As in transformers: json.dumps that leaves characters as they are.
Result ToJsonFilter(const FilterCall& call) {
  JsonStyle style;
  style.ensure_ascii = call.Flag(0);
  if (call.Has(1)) {
    const Value& indent = *call.arguments[1];
    if (!indent.is_string() && !indent.AsInt().has_value())
      return Fault("tojson: indent is no number");
    const int64_t width = indent.is_string() ? static_cast<int64_t>(indent.string().size())
                                             : std::max<int64_t>(*indent.AsInt(), 0);
    if (width > 64) return Fault("tojson: indent is more than 64");
    style.indent =
        indent.is_string() ? indent.string() : std::string(static_cast<size_t>(width), ' ');
    style.item_separator = ",";
  }
  if (call.Has(2)) {
    ASSIGN_OR_RETURN(const List separators, Iterate(*call.arguments[2]));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      return Fault("tojson: separators are two strings");
    }
    style.item_separator = separators[0].string();
    style.key_separator = separators[1].string();
    if (style.item_separator.size() + style.key_separator.size() > 64) {
      return Fault("tojson: separators are more than 64 bytes");
    }
  }
  style.sort_keys = call.Flag(3);
  ASSIGN_OR_RETURN(std::string text, ToJson(call.value, style, *call.budget));
  return Value::Of(std::move(text));
}

Result ReplaceFilter(const FilterCall& call) {
  if (call.arguments[0] == nullptr || call.arguments[1] == nullptr) {
    return Fault("replace needs what to replace and by what");
  }
  Arguments args;
  args.positional = {Value::Of(ToString(*call.arguments[0])),
                     Value::Of(ToString(*call.arguments[1]))};
  if (call.Has(2)) args.positional.push_back(*call.arguments[2]);
  return CallMethod("replace", Value::Of(ToString(call.value)), args, call.budget);
}

// The first or last item of a value that has none.
Result EndOfNothing(const Value& value, const char* name) {
  RETURN_IF_ERROR(Iterate(value).status());
  return Value::MakeUndefined(name);
}

// The one that has byte `at`.
Value CodePointAt(const std::string& text, size_t at) {
  const size_t begin = CodePointBegin(text, at);
  return Value::Of(text.substr(begin, CodePointEnd(text, at) - begin));
}

Result First(const FilterCall& call) {
  if (call.value.is_ordered(Value::Order::kGenerator)) {
    size_t& at = call.value.taken();
    return at < call.value.list().size() ? call.value.list()[at++] : Value::MakeUndefined("first");
  }
  if (!call.value.IsTrue()) return EndOfNothing(call.value, "first");
  if (call.value.is_sequence()) return call.value.list().front();
  if (call.value.is_dict()) return call.value.dict().begin()->first;
  if (call.value.is_string()) return CodePointAt(call.value.string(), 0);
  return Fault(call.value.TypeName(), " cannot be iterated");
}
Result Last(const FilterCall& call) {
  if (call.value.is_ordered(Value::Order::kGenerator)) return Fault("last of a generator");
  if (!call.value.IsTrue()) return EndOfNothing(call.value, "last");
  if (call.value.is_sequence()) return call.value.list().back();
  if (call.value.is_dict()) return std::prev(call.value.dict().end())->first;
  if (call.value.is_string()) {
    return CodePointAt(call.value.string(), call.value.string().size() - 1);
  }
  return Fault(call.value.TypeName(), " cannot be iterated");
}
Result ListFilter(const FilterCall& call) {
  ASSIGN_OR_RETURN(List items, ChargedItems(call.value, call.budget));
  return Value::Of(std::move(items));
}

// Decimal digits with a sign, and underscores between digits.
std::optional<std::string> Digits(std::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && absl::ascii_isdigit(text[i - 1]) &&
                         absl::ascii_isdigit(text[i + 1]);
    if (text[i] == '_' && between) continue;
    if (text[i] == '_') return std::nullopt;
    digits += text[i];
  }
  return digits;
}

std::optional<double> ReadFloat(const std::string& text) {
  const std::optional<std::string> digits = Digits(Strip(text, Side::kBoth));
  if (!digits.has_value() || digits->empty()) return std::nullopt;
  if (digits->find_first_of("xXpP(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double real = std::strtod(digits->c_str(), &end);
  return *end == '\0' ? std::optional<double>(real) : std::nullopt;
}

Result IntFilter(const FilterCall& call) {
  const Value otherwise = call.arguments[0] == nullptr ? Value::Of(int64_t{0}) : *call.arguments[0];
  const Value& value = call.value;
  if (value.is_undefined()) return Fault(value.TypeName(), " is no number");
  ASSIGN_OR_RETURN(const int64_t base, call.Int(1, 10));
  if (base < 2 || base > 36) return Fault("int: the base is not between 2 and 36");
  std::optional<double> real;
  if (value.is_float()) real = value.AsDouble();
  if (value.is_number() && !value.is_float()) return Value::Of(*value.AsInt());
  if (value.is_string()) {
    std::string text = Digits(Strip(value.string(), Side::kBoth)).value_or("");
    const bool negative = text.starts_with('-');
    if (negative || text.starts_with('+')) text.erase(0, 1);
    const std::string prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "";
    if (!prefix.empty() && absl::AsciiStrToLower(text).starts_with(prefix)) text.erase(0, 2);
    int64_t number = 0;
    if (negative) text.insert(0, "-");
    const bool digit =
        text.size() > (negative ? 1u : 0u) && absl::ascii_isalnum(text[negative ? 1 : 0]);
    const auto read =
        std::from_chars(text.data(), text.data() + text.size(), number, static_cast<int>(base));
    if (read.ec == std::errc::result_out_of_range) return Fault("integer out of range");
    if (digit && read.ec == std::errc() && read.ptr == text.data() + text.size()) {
      return Value::Of(number);
    }
    real = ReadFloat(value.string());
  }
  if (!real.has_value() || std::isnan(*real)) return otherwise;
  if (std::isinf(*real))
    return value.is_string() ? Result(otherwise) : Fault("integer out of range");
  if (!(std::fabs(*real) < 9.2e18)) return Fault("integer out of range");
  return Value::Of(static_cast<int64_t>(*real));
}

Result FloatFilter(const FilterCall& call) {
  if (call.value.is_undefined()) return Fault(call.value.TypeName(), " is no number");
  if (call.value.is_number()) return Value::Of(call.value.AsDouble());
  const std::optional<double> real =
      call.value.is_string() ? ReadFloat(call.value.string()) : std::nullopt;
  if (real.has_value()) return Value::Of(*real);
  return call.arguments[0] != nullptr ? *call.arguments[0] : Value::Of(0.0);
}

Result Abs(const FilterCall& call) {
  const Value& value = call.value;
  if (!value.is_number()) return Fault("abs of ", value.TypeName());
  if (value.is_float()) return Value::Of(std::fabs(value.AsDouble()));
  if (*value.AsInt() == INT64_MIN) return Fault("integer out of range");
  return Value::Of(std::abs(*value.AsInt()));
}

Result Reverse(const FilterCall& call) {
  if (call.value.is_string()) {
    return GetSlice(call.value, Value::MakeNone(), Value::MakeNone(), Value::Of(int64_t{-1}));
  }
  ASSIGN_OR_RETURN(List items, ChargedItems(call.value, call.budget));
  std::ranges::reverse(items);
  const bool list = call.value.is_ordered(Value::Order::kGenerator);
  return Value::Of(std::move(items), list ? Value::Order::kList : Value::Order::kGenerator);
}

Result Items(const FilterCall& call) {
  List out;
  if (!call.value.is_undefined()) {
    if (!call.value.is_dict()) return Fault("items of ", call.value.TypeName());
    RETURN_IF_ERROR(call.budget->ChargeItems(kItemsOfPair * call.value.dict().size()));
    for (const auto& [key, value] : call.value.dict()) {
      out.push_back(Value::Of(List{key, value}, Value::Order::kTuple));
    }
  }
  return Value::Of(std::move(out), Value::Order::kGenerator);
}

Result Attr(const FilterCall& call) {
  if (call.arguments[0] == nullptr || !call.arguments[0]->is_string()) {
    return Fault("attr needs a name");
  }
  const std::string& name = call.arguments[0]->string();
  if (call.value.is_dict() && !HasMethod(call.value, name)) return Value::MakeUndefined(name);
  return GetAttribute(call.value, name);
}

Result Indent(const FilterCall& call) {
  if (!call.value.is_string()) return Fault("indent of ", call.value.TypeName());
  const bool text_width = call.Has(0) && call.arguments[0]->is_string();
  int64_t width = 0;
  if (!text_width) {
    ASSIGN_OR_RETURN(width, call.Int(0, 4));
  }
  if (width > 256) return Fault("indent: the width is more than 256");
  const std::string pad =
      text_width ? call.arguments[0]->string() : std::string(std::max<int64_t>(width, 0), ' ');
  const bool first = call.Flag(1), blank = call.Flag(2);
  const std::string text = call.value.string() + "\n";  // the last line end starts no further line
  const std::vector<std::string_view> lines = SplitLines(text, /*keep_ends=*/false);
  RETURN_IF_ERROR(call.budget->CheckText(lines.size() * pad.size()));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !lines[i].empty()) out += pad;
    out += lines[i];
  }
  return Value::Of(std::move(out), call.value.is_safe());
}

// Python rounds no double to more digits behind the point, or to more before it.
constexpr int64_t kMostDigits = 323, kLeastDigits = -308;

// Rounds halves of the decimal notation to even, as Python does.
double RoundHalfEven(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > kMostDigits) return value;
  if (digits < kLeastDigits) return std::copysign(0.0, value);
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  char text[1024];
  std::snprintf(text, sizeof text, "%.*f", static_cast<int>(digits), value);
  return std::strtod(text, nullptr);
}

// To a multiple of 10 ** -digits, halves to even.
Result RoundInteger(int64_t value, int64_t digits) {
  if (digits < -19) return Value::Of(int64_t{0});  // half of 10 ** 20 is outside 64 bits
  __int128 unit = 1;
  for (; digits < 0; ++digits) unit *= 10;
  __int128 quotient = value / unit;
  const __int128 rest = value % unit, twice = (rest < 0 ? -rest : rest) * 2;
  if (twice > unit || (twice == unit && quotient % 2 != 0)) quotient += value < 0 ? -1 : 1;
  const __int128 rounded = quotient * unit;
  if (rounded != static_cast<int64_t>(rounded)) return Fault("integer out of range");
  return Value::Of(static_cast<int64_t>(rounded));
}

Result Round(const FilterCall& call) {
  const Value& value = call.value;
  if (!value.is_number()) return Fault("round of ", value.TypeName());
  ASSIGN_OR_RETURN(const int64_t digits, call.Int(0, 0));
  const std::string method = call.Text(1, "common");
  if (method == "common") {
    if (!value.is_float()) return RoundInteger(*value.AsInt(), digits);
    const double rounded = RoundHalfEven(value.AsDouble(), digits);
    if (std::isfinite(value.AsDouble()) && !std::isfinite(rounded)) {
      return Fault("round: the number is out of range");
    }
    return Value::Of(rounded);
  }
  if (method != "ceil" && method != "floor") return Fault("round: method is common, ceil or floor");
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = value.AsDouble() * unit;
  if (unit == 0 || !std::isfinite(scaled)) return Fault("round: the number is out of range");
  return Value::Of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Result Truncate(const FilterCall& call) {
  const std::string end = call.Text(2, "...");
  ASSIGN_OR_RETURN(const int64_t length, call.Int(0, 255));
  ASSIGN_OR_RETURN(const int64_t leeway, call.Int(3, 5));
  const int64_t end_size = CountCodePoints(end);
  if (length < end_size || leeway < 0) return Fault("truncate: the length is too small");
  const int64_t room = length - end_size;
  ASSIGN_OR_RETURN(const int64_t size, LengthOf(call.value));
  if (size >= 0 && size - leeway <= length) return call.value;
  if (!call.value.is_string()) return Fault("truncate of ", call.value.TypeName());
  const std::string& text = call.value.string();
  const std::string kept = text.substr(0, ByteAt(text, room));
  return Value::Of((call.Flag(1) ? kept : kept.substr(0, kept.rfind(' '))) + end);
}

// Capitalizes what stands behind white space and opening brackets.
Result TitleFilter(const FilterCall& call) {
  const std::string text = ToString(call.value);
  std::string out, word;
  const auto flush = [&out, &word] { out += Capitalize(std::exchange(word, {})); };
  for (size_t at = 0; at < text.size();) {
    const size_t next = at + 1;
    const std::string_view one = std::string_view(text).substr(at, next - at);
    const bool breaks = std::string_view("-({[<").find(one[0]) != std::string_view::npos ||
                        (static_cast<uint8_t>(one[0]) < 0x80 && Strip(one, Side::kBoth).empty());
    if (breaks) {
      flush();
      out += one;
    } else {
      word += one;
    }
    at = next;
  }
  flush();
  return Value::Of(std::move(out));
}

Result UrlEncode(const FilterCall& call) {
  if (call.value.is_sequence() || call.value.is_dict()) {
    return Fault("urlencode of pairs is not supported");
  }
  std::string out;
  for (const char c : ToString(call.value)) {
    if (absl::ascii_isalnum(c) || std::string_view("_.-~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<uint8_t>(c));
    }
  }
  return Value::Of(std::move(out));
}

Result FormatFilter(const FilterCall& call) {
  const Arguments& given = call.given;
  if (!given.positional.empty() && !given.named.empty()) {
    return Fault("format takes values or named values, not both");
  }
  Value values = Value::Of(given.positional, Value::Order::kTuple);
  if (!given.named.empty()) {
    Dict named;
    for (const auto& [name, value] : given.named) named.Set(name, value);
    values = Value::Of(std::move(named));
  }
  ASSIGN_OR_RETURN(std::string text, PercentFormat(ToString(call.value), values, call.budget));
  return Value::Of(std::move(text));
}

Result Center(const FilterCall& call) {
  ASSIGN_OR_RETURN(const int64_t width, call.Int(0, 80));
  Arguments args;
  args.positional = {Value::Of(width)};
  return CallMethod("center", Value::Of(ToString(call.value)), args, call.budget);
}

Result Escape(const FilterCall& call) {
  if (call.value.is_safe()) return call.value;
  return Value::Of(EscapeHtml(ToString(call.value)), /*safe=*/true);
}
Result ForceEscape(const FilterCall& call) {
  return Value::Of(EscapeHtml(ToString(call.value)), /*safe=*/true);
}
Result Safe(const FilterCall& call) { return Value::Of(ToString(call.value), /*safe=*/true); }
Result StringFilter(const FilterCall& call) {
  return call.value.is_string() ? call.value : Value::Of(ToString(call.value));
}

template <std::string (*kMap)(std::string_view)>
Result MapText(const FilterCall& call) {
  return Value::Of(kMap(ToString(call.value)), call.value.is_safe());
}

// A filter is charged for these before it runs, each with the ones before it. Filters of lists
// charge the items that they read.
enum class Reads : uint8_t { kNothing, kArguments, kText, kParts };

struct NamedFilter {
  std::string_view name;
  Filter apply;
  Reads reads;
  std::vector<std::string_view> parameters;
  bool takes_any = false;  // any number of arguments
};

const std::vector<NamedFilter>& Filters() {
  static const auto& filters = *new std::vector<NamedFilter>{
      {"abs", Abs, Reads::kNothing, {}},
      {"attr", Attr, Reads::kText, {"name"}},
      {"batch", FilterBatch, Reads::kArguments, {"linecount", "fill_with"}},
      {"capitalize", MapText<Capitalize>, Reads::kParts, {}},
      {"center", Center, Reads::kParts, {"width"}},
      {"count", Length, Reads::kText, {}},
      {"d", Default, Reads::kNothing, {"default_value", "boolean"}},
      {"default", Default, Reads::kNothing, {"default_value", "boolean"}},
      {"dictsort", FilterDictSort, Reads::kParts, {"case_sensitive", "by", "reverse"}},
      {"e", Escape, Reads::kParts, {}},
      {"escape", Escape, Reads::kParts, {}},
      {"first", First, Reads::kText, {}},
      {"float", FloatFilter, Reads::kText, {"default"}},
      {"forceescape", ForceEscape, Reads::kParts, {}},
      {"format", FormatFilter, Reads::kParts, {}, true},
      {"groupby", FilterGroupBy, Reads::kParts, {"attribute", "default", "case_sensitive"}},
      {"indent", Indent, Reads::kParts, {"width", "first", "blank"}},
      {"int", IntFilter, Reads::kText, {"default", "base"}},
      {"items", Items, Reads::kArguments, {}},
      {"join", FilterJoin, Reads::kArguments, {"d", "attribute"}},
      {"last", Last, Reads::kText, {}},
      {"length", Length, Reads::kText, {}},
      {"list", ListFilter, Reads::kArguments, {}},
      {"lower", MapText<ToLower>, Reads::kParts, {}},
      {"map", FilterMap, Reads::kArguments, {}, true},
      {"max", FilterMax, Reads::kParts, {"case_sensitive", "attribute"}},
      {"min", FilterMin, Reads::kParts, {"case_sensitive", "attribute"}},
      {"reject", FilterReject, Reads::kArguments, {}, true},
      {"rejectattr", FilterRejectAttr, Reads::kArguments, {}, true},
      {"replace", ReplaceFilter, Reads::kParts, {"old", "new", "count"}},
      {"reverse", Reverse, Reads::kText, {}},
      {"round", Round, Reads::kText, {"precision", "method"}},
      {"safe", Safe, Reads::kParts, {}},
      {"select", FilterSelect, Reads::kArguments, {}, true},
      {"selectattr", FilterSelectAttr, Reads::kArguments, {}, true},
      {"slice", FilterSlice, Reads::kArguments, {"slices", "fill_with"}},
      {"sort", FilterSort, Reads::kParts, {"reverse", "case_sensitive", "attribute"}},
      {"string", StringFilter, Reads::kParts, {}},
      {"sum", FilterSum, Reads::kArguments, {"attribute", "start"}},
      {"title", TitleFilter, Reads::kParts, {}},
      {"tojson",
       ToJsonFilter,
       Reads::kParts,
       {"ensure_ascii", "indent", "separators", "sort_keys"}},
      {"trim", Trim, Reads::kParts, {"chars"}},
      {"truncate", Truncate, Reads::kParts, {"length", "killwords", "end", "leeway"}},
      {"unique", FilterUnique, Reads::kParts, {"case_sensitive", "attribute"}},
      {"upper", MapText<ToUpper>, Reads::kParts, {}},
      {"urlencode", UrlEncode, Reads::kParts, {}},
  };
  return filters;
}

const NamedFilter* FindFilter(std::string_view name) {
  const auto at = std::ranges::find(Filters(), name, &NamedFilter::name);
  return at == Filters().end() ? nullptr : &*at;
}

// Gives every parameter its argument.
absl::Status Bind(const NamedFilter& filter, const Arguments& args, FilterCall* call) {
  if (filter.takes_any) return absl::OkStatus();
  call->arguments.resize(filter.parameters.size());
  if (args.positional.size() > filter.parameters.size()) {
    return Fault(filter.name, " takes ", filter.parameters.size(), " arguments");
  }
  for (size_t i = 0; i < args.positional.size(); ++i) call->arguments[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto at = std::ranges::find(filter.parameters, name);
    const size_t i = static_cast<size_t>(at - filter.parameters.begin());
    if (at == filter.parameters.end() || call->arguments[i] != nullptr) {
      return Fault(filter.name, ": argument '", name, "' does not fit");
    }
    call->arguments[i] = &value;
  }
  return absl::OkStatus();
}

}  // namespace

bool IsFilter(std::string_view name) { return FindFilter(name) != nullptr; }

absl::StatusOr<Value> ApplyFilter(std::string_view name, const Value& value, const Arguments& args,
                                  Budget* budget) {
  const NamedFilter* const filter = FindFilter(name);
  if (filter == nullptr) {
    return Fault("filter '", Shortened(name), "' is not supported");
  }
  if (filter->reads >= Reads::kArguments) RETURN_IF_ERROR(ChargeArguments(args, budget));
  if (filter->reads >= Reads::kText && value.is_string()) {
    RETURN_IF_ERROR(budget->ChargeText(value.string().size()));
  }
  if (filter->reads == Reads::kParts) RETURN_IF_ERROR(budget->Charge(value.weight()));
  FilterCall call{value, {}, args, budget};
  RETURN_IF_ERROR(Bind(*filter, args, &call));
  return filter->apply(call);
}

}  // namespace quire::jinja
