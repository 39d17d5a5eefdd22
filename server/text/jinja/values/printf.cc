// Both ways read a specification from the text and pad what it says in the same manner.
#include "server/text/jinja/values/printf.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/jinja/values/fault.h"
#include "server/text/jinja/values/format.h"
#include "server/text/jinja/values/text.h"
#include "server/text/unicode/unicode.h"

namespace quire::jinja {
namespace {

constexpr int64_t kMaxPrecision = 400;  // of numbers: any float has fewer digits

struct Spec {
  std::string fill = " ";  // one code point
  char align = '\0';       // < > ^ =, none: as the value's type has it
  char sign = '-';
  bool alternate = false;
  char grouping = '\0';  // , or _
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

// Reads decimal digits from `at`; -1 if there are none.
int64_t TakeNumber(std::string_view text, size_t* at) {
  int64_t number = -1;
  for (; *at < text.size() && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
    number = std::min<int64_t>(std::max<int64_t>(number, 0) * 10 + (text[*at] - '0'), 1 << 30);
  }
  return number;
}

// `sign` belongs to a number and stands before zeros that fill.
std::string Padded(const std::string& sign, const std::string& body, const Spec& spec,
                   char usual_align) {
  const char align = spec.align == '\0' ? usual_align : spec.align;
  const int64_t missing = spec.width - CountCodePoints(sign) - CountCodePoints(body);
  const auto fill = [&spec](int64_t count) {
    std::string out;
    for (; count > 0; --count) out += spec.fill;
    return out;
  };
  if (missing <= 0) return sign + body;
  if (align == '<') return sign + body + fill(missing);
  if (align == '=') return sign + fill(missing) + body;
  if (align == '^') return fill(missing / 2) + sign + body + fill(missing - missing / 2);
  return fill(missing) + sign + body;
}

std::string SignText(bool negative, char sign) {
  if (negative) return "-";
  return sign == '+' ? "+" : sign == ' ' ? " " : "";
}

// 1234567.5 to 1,234,567.5.
std::string Grouped(const std::string& digits, char separator) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string IntegerDigits(uint64_t value, char type, bool alternate) {
  if (type == 'b') {
    std::string bits;
    for (; value > 0 || bits.empty(); value /= 2) bits.insert(bits.begin(), '0' + (value & 1));
    return (alternate ? "0b" : "") + bits;
  }
  if (type == 'o') return (alternate ? "0o" : "") + absl::StrFormat("%o", value);
  if (type == 'x') return (alternate ? "0x" : "") + absl::StrFormat("%x", value);
  if (type == 'X') return (alternate ? "0X" : "") + absl::StrFormat("%X", value);
  return absl::StrCat(value);
}

std::string RealDigits(double size, const Spec& spec) {
  const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
  if (std::isnan(size) || std::isinf(size)) {
    const std::string text = std::isnan(size) ? "nan" : "inf";
    return upper ? ToUpper(text) : text;
  }
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  const char type = spec.type == '%' ? 'f' : spec.type;
  const char format[] = {'%', '.', '*', type, '\0'}, marked[] = {'%', '#', '.', '*', type, '\0'};
  char text[1024];
  std::snprintf(text, sizeof text, spec.alternate ? marked : format, precision,
                spec.type == '%' ? size * 100 : size);
  return spec.type == '%' ? absl::StrCat(text, "%") : text;
}

absl::StatusOr<std::string> FormatInteger(int64_t value, const Spec& spec) {
  const uint64_t size = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits = IntegerDigits(size, spec.type, spec.alternate);
  if (spec.grouping != '\0') digits = Grouped(digits, spec.grouping);
  return Padded(SignText(value < 0, spec.sign), digits, spec, '>');
}

absl::StatusOr<std::string> FormatReal(double value, const Spec& spec) {
  if (spec.precision > kMaxPrecision) return Fault("a precision of more than 400");
  const bool negative = std::signbit(value) && !std::isnan(value);
  std::string digits = RealDigits(std::fabs(value), spec);
  if (spec.grouping != '\0') digits = Grouped(digits, spec.grouping);
  return Padded(SignText(negative, spec.sign), digits, spec, '>');
}

std::string Truncated(const std::string& text, int64_t precision) {
  return precision < 0 ? text : text.substr(0, ByteAt(text, precision));
}

// --- "%s" % values ---

class PercentFormatter {
 public:
  PercentFormatter(const std::string& text, const Value& values, Budget* budget)
      : text_(text), values_(values), budget_(*budget) {}

  absl::StatusOr<std::string> Run() {
    RETURN_IF_ERROR(budget_.ChargeText(text_.size()));
    std::string out;
    while (at_ < text_.size()) {
      const size_t next = std::min(text_.find('%', at_), text_.size());
      out += text_.substr(at_, next - at_);
      at_ = next + 1;
      if (next == text_.size()) break;
      ASSIGN_OR_RETURN(const std::string field, Field());
      out += field;
      RETURN_IF_ERROR(budget_.CheckText(out.size()));
    }
    const bool single = !values_.is_ordered(Value::Order::kTuple);
    const size_t count = single ? 1 : values_.list().size();
    const bool may_stay = values_.is_dict() || (single && values_.is_sequence());
    if (used_ < count && !may_stay) return Fault("% has values that the text does not use");
    return out;
  }

 private:
  absl::StatusOr<Value> NextValue() {
    const bool tuple = values_.is_ordered(Value::Order::kTuple);
    if (used_ >= (tuple ? values_.list().size() : 1)) return Fault("% has too few values");
    return tuple ? values_.list()[used_++] : (++used_, values_);
  }

  absl::StatusOr<int64_t> NumberOrStar() {
    // -1 is for none, so a * of -1 is taken for -2: no text is shorter.
    if (at_ >= text_.size() || text_[at_] != '*') return TakeNumber(text_, &at_);
    ++at_;
    ASSIGN_OR_RETURN(const Value value, NextValue());
    if (!value.is_number() || value.is_float()) return Fault("* needs an integer");
    const int64_t number = std::clamp<int64_t>(*value.AsInt(), -(1 << 30), 1 << 30);
    return number == -1 ? -2 : number;
  }

  // After the %.
  absl::StatusOr<std::string> Field() {
    std::optional<Value> named;
    if (at_ < text_.size() && text_[at_] == '(') {
      const size_t end = text_.find(')', at_);
      if (end == text_.npos || !values_.is_dict()) return Fault("%(name) needs a dict");
      const Value* member = values_.dict().Find(text_.substr(at_ + 1, end - at_ - 1));
      if (member == nullptr) return Fault("%(name): there is no such member");
      named = *member;
      at_ = end + 1;
    }
    Spec spec;
    bool zero = false;
    for (;
         at_ < text_.size() && std::string_view("#0- +").find(text_[at_]) != std::string_view::npos;
         ++at_) {
      if (text_[at_] == '#') spec.alternate = true;
      if (text_[at_] == '0') zero = true;
      if (text_[at_] == '-') spec.align = '<';
      if (text_[at_] == '+' || (text_[at_] == ' ' && spec.sign != '+')) spec.sign = text_[at_];
    }
    ASSIGN_OR_RETURN(spec.width, NumberOrStar());
    if (spec.width < -1) spec.align = '<';
    spec.width = spec.width == -1 ? 0 : std::abs(spec.width);
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      ASSIGN_OR_RETURN(spec.precision, NumberOrStar());
      spec.precision = std::max<int64_t>(spec.precision, 0);
    }
    while (at_ < text_.size() &&
           std::string_view("hlL").find(text_[at_]) != std::string_view::npos) {
      ++at_;
    }
    if (at_ >= text_.size()) return Fault("% without its letter");
    spec.type = text_[at_++];
    if (spec.type == '%') return std::string("%");
    Value value = named.value_or(Value());
    if (!named.has_value()) {
      ASSIGN_OR_RETURN(value, NextValue());
    }
    RETURN_IF_ERROR(budget_.CheckText(static_cast<size_t>(spec.width)));
    const bool number =
        spec.type != 's' && spec.type != 'r' && spec.type != 'a' && spec.type != 'c';
    if (zero && number && spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
    return Converted(value, &spec);
  }

  absl::StatusOr<std::string> Converted(const Value& value, Spec* spec) {
    switch (spec->type) {
      case 's':
      case 'r':
      case 'a': {
        RETURN_IF_ERROR(budget_.Charge(value.weight()));
        const std::string text = spec->type == 's' ? ToString(value) : ToRepr(value);
        return Padded("", Truncated(text, spec->precision), *spec, '>');
      }
      case 'c': return Character(value, *spec);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X': return Integer(value, *spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) return Fault("% needs a number, not ", value.TypeName());
        return FormatReal(value.AsDouble(), *spec);
      default: return Fault("% with an unknown letter");
    }
  }

  static absl::StatusOr<std::string> Character(const Value& value, const Spec& spec) {
    if (value.is_string() && CountCodePoints(value.string()) == 1) {
      return Padded("", value.string(), spec, '>');
    }
    const int64_t code = value.is_float() ? -1 : value.AsInt().value_or(-1);
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return Fault("%c needs a character");
    }
    std::string text;
    AppendUtf8(static_cast<char32_t>(code), &text);
    return Padded("", text, spec, '>');
  }

  static absl::StatusOr<std::string> Integer(const Value& value, Spec spec) {
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!value.is_number() || (value.is_float() && !decimal)) {
      return Fault("% needs an integer, not ", value.TypeName());
    }
    int64_t whole = value.AsInt().value_or(0);
    if (value.is_float()) {
      if (!(std::fabs(value.AsDouble()) < 9e18)) return Fault("integer out of range");
      whole = static_cast<int64_t>(value.AsDouble());
    }
    if (spec.precision <= 0) return FormatInteger(whole, spec);
    if (spec.precision > kMaxPrecision) return Fault("a precision of more than 400");
    const uint64_t size =
        whole < 0 ? 0 - static_cast<uint64_t>(whole) : static_cast<uint64_t>(whole);
    Spec digits;
    digits.fill = "0";
    digits.width = spec.precision;
    const std::string body = Padded("", IntegerDigits(size, spec.type, false), digits, '>');
    return Padded(SignText(whole < 0, spec.sign), body, spec, '>');
  }

  const std::string& text_;
  const Value& values_;
  Budget& budget_;
  size_t at_ = 0;
  size_t used_ = 0;
};

// --- "{}".format(values) ---

absl::StatusOr<Spec> ReadSpec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [&text](size_t i) {
    return i < text.size() && std::string_view("<>=^").find(text[i]) != std::string_view::npos;
  };
  const size_t first = text.empty() ? 0 : CodePointEnd(text, 0);
  if (!text.empty() && is_align(first)) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    at = first + 1;
  } else if (is_align(0)) {
    spec.align = text[at++];
  }
  const auto take = [&](std::string_view any) {
    const bool found = at < text.size() && any.find(text[at]) != std::string_view::npos;
    return found ? text[at++] : '\0';
  };
  if (const char sign = take("+- "); sign != '\0') spec.sign = sign;
  spec.alternate = take("#") != '\0';
  if (take("0") != '\0' && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = std::max<int64_t>(TakeNumber(text, &at), 0);
  spec.grouping = take(",_");
  if (take(".") != '\0') {
    spec.precision = TakeNumber(text, &at);
    if (spec.precision < 0) return Fault("format: a precision has no digits");
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (at != text.size()) return Fault("format: the specification is not valid");
  return spec;
}

class BraceFormatter {
 public:
  BraceFormatter(const std::string& text, const Arguments& args, Budget* budget)
      : text_(text), args_(args), budget_(*budget) {}

  absl::StatusOr<std::string> Run() {
    RETURN_IF_ERROR(budget_.ChargeText(text_.size()));
    std::string out;
    for (size_t at = 0; at < text_.size();) {
      const char c = text_[at];
      const bool twice = at + 1 < text_.size() && text_[at + 1] == c;
      if ((c == '{' || c == '}') && twice) {
        out += c;
        at += 2;
      } else if (c == '}') {
        return Fault("format: a } without its {");
      } else if (c != '{') {
        out += c;
        ++at;
      } else {
        const size_t end = text_.find_first_of("{}", at + 1);
        if (end == text_.npos) return Fault("format: a { without its }");
        if (text_[end] == '{') return Fault("format: a field within a field is not supported");
        ASSIGN_OR_RETURN(const std::string field, Field(text_.substr(at + 1, end - at - 1)));
        out += field;
        RETURN_IF_ERROR(budget_.CheckText(out.size()));
        at = end + 1;
      }
    }
    return out;
  }

 private:
  absl::StatusOr<std::string> Field(const std::string& field) {
    RETURN_IF_ERROR(budget_.ChargeItems(args_.named.size()));  // that are searched
    const size_t colon = std::min(field.find(':'), field.size());
    std::string name = field.substr(0, colon);
    char conversion = '\0';
    if (const size_t mark = name.find('!'); mark != name.npos) {
      if (mark + 2 != name.size()) return Fault("format: a conversion is one letter");
      conversion = name[mark + 1];
      name.resize(mark);
    }
    ASSIGN_OR_RETURN(Value value, Resolve(name));
    RETURN_IF_ERROR(budget_.Charge(value.weight()));
    if (conversion == 's')
      value = Value::Of(ToString(value));
    else if (conversion == 'r' || conversion == 'a')
      value = Value::Of(ToRepr(value));
    else if (conversion != '\0')
      return Fault("format: an unknown conversion");
    return Format(value, colon < field.size() ? field.substr(colon + 1) : "");
  }

  // name.attribute[item]...
  absl::StatusOr<Value> Resolve(const std::string& name) {
    size_t at = std::min(name.find_first_of(".["), name.size());
    ASSIGN_OR_RETURN(Value value, First(name.substr(0, at)));
    while (at < name.size()) {
      const bool item = name[at] == '[';
      if (!item && name[at] != '.') return Fault("format: a field name is not valid");
      const size_t end =
          item ? name.find(']', at) : std::min(name.find_first_of(".[", at + 1), name.size());
      if (end == name.npos || end == at + 1) return Fault("format: a field name is not valid");
      const std::string part = name.substr(at + 1, end - at - 1);
      size_t digits = 0;
      const int64_t index = TakeNumber(part, &digits);
      const bool numeric = item && digits == part.size();
      if (value.is_string()) RETURN_IF_ERROR(budget_.ChargeText(value.string().size()));
      if (item) {
        ASSIGN_OR_RETURN(value, GetItem(value, numeric ? Value::Of(index) : Value::Of(part)));
      } else {
        ASSIGN_OR_RETURN(value, GetAttribute(value, part));
      }
      at = end + (item ? 1 : 0);
    }
    return value;
  }

  absl::StatusOr<Value> First(const std::string& name) {
    size_t digits = 0;
    const int64_t index = TakeNumber(name, &digits);
    if (name.empty() || (index >= 0 && digits == name.size())) {
      if (name.empty() ? numbered_ > 0 : next_ > 0) {
        return Fault("format: fields with and without numbers");
      }
      if (!name.empty()) ++numbered_;
      const size_t at = name.empty() ? next_++ : static_cast<size_t>(index);
      if (at >= args_.positional.size()) return Fault("format has too few values");
      return args_.positional[at];
    }
    const Value* value = args_.Find(SIZE_MAX, name);
    if (value == nullptr) return Fault("format has no value '", name, "'");
    return *value;
  }

  absl::StatusOr<std::string> Format(const Value& value, const std::string& text) {
    if (text.empty()) return ToString(value);
    ASSIGN_OR_RETURN(Spec spec, ReadSpec(text));
    RETURN_IF_ERROR(budget_.CheckText(static_cast<size_t>(spec.width)));
    if (value.is_string()) {
      if ((spec.type != '\0' && spec.type != 's') || spec.sign != '-' || spec.grouping != '\0' ||
          spec.alternate || (spec.align == '=' && text.find('=') != text.npos)) {
        return Fault("format: the specification does not fit a string");
      }
      if (spec.align == '=') spec.align = '<';
      return Padded("", Truncated(value.string(), spec.precision), spec, '<');
    }
    if (!value.is_number()) {
      return Fault("format: ", value.TypeName(), " takes no specification");
    }
    const bool real =
        spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
    if (value.is_float() || real) return FormatFloat(value.AsDouble(), spec);
    if (spec.precision >= 0) return Fault("format: an integer takes no precision");
    if (spec.type == 's') return Fault("format: a number is no string");
    if (spec.type == 'c') return Fault("format: type c is not supported");
    return FormatInteger(*value.AsInt(), spec);
  }

  static absl::StatusOr<std::string> FormatFloat(double value, Spec spec) {
    if (spec.type == '\0' && spec.precision < 0) {
      std::string digits = ToString(Value::Of(std::fabs(value)));
      if (spec.grouping != '\0') digits = Grouped(digits, spec.grouping);
      return Padded(SignText(std::signbit(value), spec.sign), digits, spec, '>');
    }
    if (spec.type == '\0' || spec.type == 'n') {
      return Fault("format: a precision without a letter is not supported");
    }
    if (std::string_view("eEfFgG%").find(spec.type) == std::string_view::npos) {
      return Fault("format: the specification does not fit a float");
    }
    return FormatReal(value, spec);
  }

  const std::string& text_;
  const Arguments& args_;
  Budget& budget_;
  size_t next_ = 0;
  size_t numbered_ = 0;
};

}  // namespace

absl::StatusOr<std::string> PercentFormat(const std::string& text, const Value& values,
                                          Budget* budget) {
  return PercentFormatter(text, values, budget).Run();
}

absl::StatusOr<std::string> BraceFormat(const std::string& text, const Arguments& args,
                                        Budget* budget) {
  return BraceFormatter(text, args, budget).Run();
}

}  // namespace quire::jinja
