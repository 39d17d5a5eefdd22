// Python's notation for numbers, strings and containers.
#include "server/text/jinja/values/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include <utf8proc.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/values/callable.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/jinja/values/text.h"
#include "server/text/unicode/unicode.h"

namespace quire::jinja {
namespace {

// The shortest digits that read back as `v`, in Python's notation: plain between 1e-4 and 1e16.
std::string FloatText(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[64];
  const double size = std::fabs(v);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, v,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

// Python's str.isprintable for one character.
bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
  }
}

std::string Quoted(const std::string& text) {
  const bool single = text.find('\'') == std::string::npos || text.find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeUtf8(text.data() + at);
    const char byte = text[at];
    if (byte == quote || byte == '\\') {
      out += {'\\', byte};
    } else if (byte == '\n' || byte == '\r' || byte == '\t') {
      out += {'\\', byte == '\n' ? 'n' : byte == '\r' ? 'r' : 't'};
    } else if (IsPrintable(c.value)) {
      out.append(text, at, static_cast<size_t>(c.size));
    } else if (c.value < 0x100) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<unsigned>(c.value));
    } else if (c.value < 0x10000) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned>(c.value));
    } else {
      absl::StrAppendFormat(&out, "\\U%08x", static_cast<unsigned>(c.value));
    }
    at += static_cast<size_t>(c.size);
  }
  return out + quote;
}

void AppendItems(const List& items, std::string_view open, std::string_view close,
                 std::string* out) {
  *out += open;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) *out += ", ";
    *out += ToRepr(items[i]);
  }
  *out += close;
}

void AppendSequence(const Value& value, std::string* out) {
  const List& items = value.list();
  switch (value.order()) {
    case Value::Order::kList: return AppendItems(items, "[", "]", out);
    case Value::Order::kTuple: return AppendItems(items, "(", items.size() == 1 ? ",)" : ")", out);
    case Value::Order::kKeys: return AppendItems(items, "dict_keys([", "])", out);
    case Value::Order::kValues: return AppendItems(items, "dict_values([", "])", out);
    case Value::Order::kItems: return AppendItems(items, "dict_items([", "])", out);
    case Value::Order::kGenerator: *out += "<generator>"; return;
    case Value::Order::kRange: break;
  }
  // Only its bounds are printed.
  const int64_t first = items.empty() ? 0 : *items[0].AsInt();
  const int64_t step = items.size() < 2 ? 1 : *items[1].AsInt() - first;
  const int64_t stop = items.empty() ? 0 : *items.back().AsInt() + (step > 0 ? 1 : -1);
  absl::StrAppend(out, "range(", first, ", ", stop);
  if (step != 1) absl::StrAppend(out, ", ", step);
  *out += ')';
}

void AppendDict(const Dict& members, std::string* out) {
  *out += '{';
  const char* between = "";
  for (const auto& [key, value] : members) {
    absl::StrAppend(out, between, ToRepr(key), ": ", ToRepr(value));
    between = ", ";
  }
  *out += '}';
}

void AppendJsonString(const std::string& text, bool ensure_ascii, std::string* out) {
  static constexpr std::string_view kPlain = "\"\\\n\r\t\b\f", kEscaped = "\"\\nrtbf";
  *out += '"';
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeUtf8(text.data() + at);
    if (const size_t known = kPlain.find(text[at]); known != kPlain.npos) {
      *out += {'\\', kEscaped[known]};
    } else if (c.value < 0x20 || (ensure_ascii && c.value >= 0x80 && c.value < 0x10000)) {
      absl::StrAppendFormat(out, "\\u%04x", static_cast<unsigned>(c.value));
    } else if (ensure_ascii && c.value >= 0x10000) {
      absl::StrAppendFormat(out, "\\u%04x\\u%04x",
                            static_cast<unsigned>(0xD800 + ((c.value - 0x10000) >> 10)),
                            static_cast<unsigned>(0xDC00 + ((c.value - 0x10000) & 0x3FF)));
    } else {
      out->append(text, at, static_cast<size_t>(c.size));
    }
    at += static_cast<size_t>(c.size);
  }
  *out += '"';
}

class JsonPrinter {
 public:
  JsonPrinter(const JsonStyle& style, const Budget& budget, std::string* out)
      : style_(style), budget_(budget), out_(out) {}

  absl::Status Print(const Value& value) {
    RETURN_IF_ERROR(budget_.CheckText(out_->size()));
    if (value.is_string()) {
      AppendJsonString(value.string(), style_.ensure_ascii, out_);
    } else if (value.is_ordered(Value::Order::kList) || value.is_ordered(Value::Order::kTuple)) {
      return PrintList(value.list());
    } else if (value.is_dict()) {
      return PrintDict(value.dict());
    } else if (value.is_none() || value.is_number()) {
      *out_ += Scalar(value);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(value.TypeName(), " has no JSON form"));
    }
    return absl::OkStatus();
  }

 private:
  static std::string Scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.IsTrue() ? "true" : "false";
    if (value.is_float() && !std::isfinite(value.AsDouble())) {
      return std::isnan(value.AsDouble()) ? "NaN" : value.AsDouble() < 0 ? "-Infinity" : "Infinity";
    }
    return ToString(value);
  }
  void NewLine() {
    if (!style_.indent.has_value()) return;
    *out_ += '\n';
    for (size_t i = 0; i < depth_; ++i) *out_ += *style_.indent;
  }
  absl::Status PrintList(const List& list) {
    *out_ += '[';
    ++depth_;
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) *out_ += style_.item_separator;
      NewLine();
      RETURN_IF_ERROR(Print(list[i]));
    }
    --depth_;
    if (!list.empty()) NewLine();
    *out_ += ']';
    return absl::OkStatus();
  }
  absl::Status PrintDict(const Dict& dict) {
    std::vector<Dict::Member> members(dict.begin(), dict.end());
    if (style_.sort_keys) RETURN_IF_ERROR(SortMembers(&members));
    *out_ += '{';
    ++depth_;
    for (size_t i = 0; i < members.size(); ++i) {
      const Value& key = members[i].first;
      if (i > 0) *out_ += style_.item_separator;
      NewLine();
      if (!key.is_string() && !key.is_none() && !key.is_number()) {
        return absl::InvalidArgumentError(absl::StrCat(key.TypeName(), " is no key in JSON"));
      }
      AppendJsonString(key.is_string() ? key.string() : Scalar(key), style_.ensure_ascii, out_);
      *out_ += style_.key_separator;
      RETURN_IF_ERROR(Print(members[i].second));
    }
    --depth_;
    if (!members.empty()) NewLine();
    *out_ += '}';
    return absl::OkStatus();
  }
  static absl::Status SortMembers(std::vector<Dict::Member>* members) {
    for (const Dict::Member& member : *members) {
      RETURN_IF_ERROR(Compare(members->front().first, member.first).status());
    }
    std::ranges::stable_sort(*members, [](const Dict::Member& a, const Dict::Member& b) {
      return Compare(a.first, b.first).value_or(0) < 0;
    });
    return absl::OkStatus();
  }

  const JsonStyle& style_;
  const Budget& budget_;
  std::string* const out_;
  size_t depth_ = 0;
};

}  // namespace

std::string ToString(const Value& value) {
  if (value.is_string()) return value.string();
  if (value.is_undefined()) return "";
  return ToRepr(value);
}

std::string ToRepr(const Value& value) {
  if (value.is_string()) {
    return value.is_safe() ? absl::StrCat("Markup(", Quoted(value.string()), ")")
                           : Quoted(value.string());
  }
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.IsTrue() ? "True" : "False";
  if (value.is_int()) return absl::StrCat(*value.AsInt());
  if (value.is_float()) return FloatText(value.AsDouble());
  std::string out;
  if (value.is_sequence()) {
    AppendSequence(value, &out);
  } else if (value.is_dict()) {
    AppendDict(value.dict(), &out);
  } else if (value.is_namespace()) {
    out = "<Namespace ";
    AppendDict(value.dict(), &out);
    out += '>';
  } else {
    out = absl::StrCat("<", value.callable()->name, ">");
  }
  return out;
}

Value Escaped(const Value& value) {
  if (!value.is_string() || value.is_safe()) return value;
  return Value::Of(EscapeHtml(value.string()), /*safe=*/true);
}

absl::StatusOr<std::string> ToJson(const Value& value, const JsonStyle& style,
                                   const Budget& budget) {
  std::string out;
  RETURN_IF_ERROR(JsonPrinter(style, budget, &out).Print(value));
  return out;
}

}  // namespace quire::jinja
