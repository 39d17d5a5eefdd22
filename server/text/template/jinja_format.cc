// Python's notation for numbers, strings and containers.
#include "server/text/template/jinja_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
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

std::string Quoted(const std::string& text) {
  const bool single = text.find('\'') == std::string::npos || text.find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (c == quote || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += {'\\', c == '\n' ? 'n' : c == '\r' ? 'r' : 't'};
    } else if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else {
      out += c;
    }
  }
  return out + quote;
}

void AppendRepr(const Value& value, std::string* out) {
  if (value.is_string()) {
    *out += Quoted(value.string());
  } else if (value.is_list()) {
    *out += value.is_tuple() ? '(' : '[';
    for (size_t i = 0; i < value.list().size(); ++i) {
      if (i > 0) *out += ", ";
      AppendRepr(value.list()[i], out);
    }
    if (value.is_tuple() && value.list().size() == 1) *out += ',';
    *out += value.is_tuple() ? ')' : ']';
  } else if (value.is_dict()) {
    *out += '{';
    for (size_t i = 0; i < value.dict().size(); ++i) {
      if (i > 0) *out += ", ";
      absl::StrAppend(out, Quoted(value.dict()[i].first), ": ");
      AppendRepr(value.dict()[i].second, out);
    }
    *out += '}';
  } else {
    *out += value.is_undefined() ? "Undefined" : ToString(value);
  }
}

void AppendJsonString(const std::string& text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': *out += "\\\""; break;
      case '\\': *out += "\\\\"; break;
      case '\n': *out += "\\n"; break;
      case '\r': *out += "\\r"; break;
      case '\t': *out += "\\t"; break;
      case '\b': *out += "\\b"; break;
      case '\f': *out += "\\f"; break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          absl::StrAppendFormat(out, "\\u%04x", static_cast<uint8_t>(c));
        } else {
          *out += c;
        }
    }
  }
  *out += '"';
}

class JsonPrinter {
 public:
  JsonPrinter(const JsonStyle& style, std::string* out) : style_(style), out_(out) {}

  absl::Status Print(const Value& value) {
    if (value.is_string()) {
      AppendJsonString(value.string(), out_);
    } else if (value.is_list()) {
      return PrintList(value.list());
    } else if (value.is_dict() && !value.is_namespace()) {
      return PrintDict(value.dict());
    } else if (value.is_none()) {
      *out_ += "null";
    } else if (value.is_bool()) {
      *out_ += value.IsTrue() ? "true" : "false";
    } else if (value.is_number()) {
      *out_ += ToString(value);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(value.TypeName(), " has no JSON form"));
    }
    return absl::OkStatus();
  }

 private:
  void Break(bool first) {
    if (!first) *out_ += style_.item_separator;
    if (style_.indent < 0) return;
    *out_ += '\n';
    out_->append(static_cast<size_t>(style_.indent) * depth_, ' ');
  }
  absl::Status PrintList(const List& list) {
    *out_ += '[';
    ++depth_;
    for (size_t i = 0; i < list.size(); ++i) {
      Break(i == 0);
      RETURN_IF_ERROR(Print(list[i]));
    }
    --depth_;
    Close(list.empty(), ']');
    return absl::OkStatus();
  }
  absl::Status PrintDict(Dict dict) {
    if (style_.sort_keys) {
      std::ranges::sort(dict, {}, &std::pair<std::string, Value>::first);
    }
    *out_ += '{';
    ++depth_;
    for (size_t i = 0; i < dict.size(); ++i) {
      Break(i == 0);
      AppendJsonString(dict[i].first, out_);
      *out_ += style_.key_separator;
      RETURN_IF_ERROR(Print(dict[i].second));
    }
    --depth_;
    Close(dict.empty(), '}');
    return absl::OkStatus();
  }
  void Close(bool empty, char bracket) {
    if (!empty && style_.indent >= 0) {
      *out_ += '\n';
      out_->append(static_cast<size_t>(style_.indent) * depth_, ' ');
    }
    *out_ += bracket;
  }

  const JsonStyle& style_;
  std::string* const out_;
  size_t depth_ = 0;
};

}  // namespace

std::string ToString(const Value& value) {
  if (value.is_string()) return value.string();
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.IsTrue() ? "True" : "False";
  if (value.is_int()) return absl::StrCat(*value.AsInt());
  if (value.is_float()) return FloatText(value.AsDouble());
  if (value.is_namespace()) return "<namespace>";
  if (!value.is_list() && !value.is_dict()) return "<macro>";
  std::string out;
  AppendRepr(value, &out);
  return out;
}

absl::StatusOr<std::string> ToJson(const Value& value, const JsonStyle& style) {
  std::string out;
  RETURN_IF_ERROR(JsonPrinter(style, &out).Print(value));
  return out;
}

}  // namespace quire::jinja
