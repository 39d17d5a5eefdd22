// Truth, equality and order of template values.
#include "server/text/template/jinja_value.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace quire::jinja {

Value Value::Of(List v, bool tuple) {
  int depth = 0;
  for (const Value& item : v) depth = std::max(depth, item.depth());
  return Value(Sequence{std::make_shared<const List>(std::move(v)), tuple, depth + 1});
}

Value Value::Of(Dict v) {
  int depth = 0;
  for (const auto& member : v) depth = std::max(depth, member.second.depth());
  return Value(Mapping{std::make_shared<Dict>(std::move(v)), /*is_namespace=*/false, depth + 1});
}

Value Value::MakeNamespace(Dict members) {
  return Value(Mapping{std::make_shared<Dict>(std::move(members)), /*is_namespace=*/true, 1});
}

int Value::depth() const {
  if (is_list()) return std::get<Sequence>(data_).depth;
  return is_dict() ? std::get<Mapping>(data_).depth : 0;
}

const MacroStatement* Value::macro() const {
  const auto* const at = std::get_if<const MacroStatement*>(&data_);
  return at == nullptr ? nullptr : *at;
}

std::optional<int64_t> Value::AsInt() const {
  if (is_bool()) return std::get<bool>(data_) ? 1 : 0;
  if (is_int()) return std::get<int64_t>(data_);
  return std::nullopt;
}

double Value::AsDouble() const {
  return is_float() ? std::get<double>(data_) : static_cast<double>(*AsInt());
}

bool Value::IsTrue() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return AsDouble() != 0;
  if (is_string()) return !string().empty();
  if (is_list()) return !list().empty();
  if (is_dict()) return is_namespace() || !dict().empty();
  return true;
}

const Value* Value::Find(std::string_view key) const {
  if (!is_dict()) return nullptr;
  const auto at = std::ranges::find(dict(), key, &std::pair<std::string, Value>::first);
  return at == dict().end() ? nullptr : &at->second;
}

std::string Value::TypeName() const {
  if (is_undefined())
    return name().empty() ? "undefined" : absl::StrCat("undefined '", name(), "'");
  if (is_none()) return "None";
  if (is_bool()) return "a boolean";
  if (is_int()) return "an integer";
  if (is_float()) return "a float";
  if (is_string()) return "a string";
  if (is_list()) return is_tuple() ? "a tuple" : "a list";
  if (is_dict()) return is_namespace() ? "a namespace" : "a dict";
  return "a macro";
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return a.AsInt() == b.AsInt();
    return a.AsDouble() == b.AsDouble();
  }
  if (a.is_string() && b.is_string()) return a.string() == b.string();
  if (a.is_list() && b.is_list()) {
    return a.is_tuple() == b.is_tuple() && std::ranges::equal(a.list(), b.list(), Equal);
  }
  if (a.is_dict() && b.is_dict()) {
    if (a.is_namespace() || b.is_namespace()) return &a.dict() == &b.dict();
    return a.dict().size() == b.dict().size() && std::ranges::all_of(a.dict(), [&](const auto& m) {
             const Value* other = b.Find(m.first);
             return other != nullptr && Equal(m.second, *other);
           });
  }
  if (a.is_undefined() || a.is_none()) {
    return a.is_undefined() ? b.is_undefined() : b.is_none();
  }
  return a.macro() != nullptr && a.macro() == b.macro();
}

absl::StatusOr<int> Compare(const Value& a, const Value& b) {
  const auto sign = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return sign(*a.AsInt(), *b.AsInt());
    return sign(a.AsDouble(), b.AsDouble());
  }
  // UTF-8 sorts as its code points do.
  if (a.is_string() && b.is_string()) return sign(a.string(), b.string());
  if (a.is_list() && b.is_list() && a.is_tuple() == b.is_tuple()) {
    for (size_t i = 0; i < std::min(a.list().size(), b.list().size()); ++i) {
      if (!Equal(a.list()[i], b.list()[i])) return Compare(a.list()[i], b.list()[i]);
    }
    return sign(a.list().size(), b.list().size());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no order between ", a.TypeName(), " and ", b.TypeName()));
}

}  // namespace quire::jinja
