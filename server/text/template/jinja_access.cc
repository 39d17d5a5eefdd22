// Attributes, items, slices, iteration and tests of values.
#include "server/text/template/jinja_access.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/template/jinja_format.h"
#include "server/text/template/jinja_text.h"
#include "server/text/unicode/unicode.h"

namespace quire::jinja {
namespace {

absl::Status Fault(const std::string& reason) { return absl::InvalidArgumentError(reason); }

// Python's rule for an index from the end.
int64_t FromEnd(int64_t index, int64_t size) { return index < 0 ? index + size : index; }

template <class... Kinds>
bool IsAny(std::string_view name, Kinds... names) {
  return ((name == names) || ...);
}

}  // namespace

const Value* Arguments::Find(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  const auto at = std::ranges::find(named, name, &std::pair<std::string, Value>::first);
  return at == named.end() ? nullptr : &at->second;
}

absl::StatusOr<Value> GetAttribute(const Value& value, const std::string& name) {
  if (value.is_undefined()) {
    return Fault(absl::StrCat(value.TypeName(), " has no attribute '", name, "'"));
  }
  if (value.is_dict() && !value.is_namespace() &&
      IsAny(name, "items", "keys", "values", "get", "copy", "pop", "update")) {
    return Fault(absl::StrCat("method '", name, "' without a call is not supported"));
  }
  const Value* member = value.Find(name);
  return member != nullptr ? *member : Value::MakeUndefined(name);
}

absl::StatusOr<Value> GetItem(const Value& value, const Value& key) {
  if (value.is_undefined()) return Fault(absl::StrCat(value.TypeName(), " has no items"));
  if (value.is_dict()) {
    const Value* member = key.is_string() ? value.Find(key.string()) : nullptr;
    return member != nullptr ? *member : Value::MakeUndefined(ToString(key));
  }
  const std::optional<int64_t> index = key.AsInt();
  if (!index.has_value()) return Value::MakeUndefined(ToString(key));
  const int64_t size = std::max<int64_t>(LengthOf(value), 0);
  const int64_t at = FromEnd(*index, size);
  if (at < 0 || at >= size) return Value::MakeUndefined(ToString(key));
  if (value.is_list()) return value.list()[at];
  const std::string& text = value.string();
  const size_t begin = ByteAt(text, at);
  return Value::Of(text.substr(begin, CodePointEnd(text, begin) - begin));
}

absl::StatusOr<Value> GetSlice(const Value& value, const Value& start, const Value& stop,
                               const Value& step) {
  if (!value.is_list() && !value.is_string()) {
    return Fault(absl::StrCat("a slice of ", value.TypeName()));
  }
  for (const Value* bound : {&start, &stop, &step}) {
    const bool open = bound->is_none() || bound->is_undefined();
    if (!open && !bound->AsInt().has_value()) return Fault("a bound of a slice is not an integer");
  }
  const int64_t stride = step.AsInt().value_or(1);
  if (stride == 0) return Fault("a slice with step 0");
  const int64_t size = LengthOf(value);
  const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? size : size - 1;
  const auto clamp = [&](const Value& bound, int64_t open) {
    if (!bound.AsInt().has_value()) return open;
    return std::clamp(FromEnd(*bound.AsInt(), size), low, high);
  };
  const int64_t first = clamp(start, stride > 0 ? low : high);
  const int64_t last = clamp(stop, stride > 0 ? high : low);
  if (value.is_string() && stride == 1) {
    const std::string& text = value.string();
    const size_t begin = ByteAt(text, first);
    const size_t length = ByteAt(std::string_view(text).substr(begin), last - first);
    return Value::Of(first < last ? text.substr(begin, length) : std::string());
  }
  ASSIGN_OR_RETURN(const List items, Iterate(value));
  List picked;
  for (int64_t i = first; stride > 0 ? i < last : i > last; i += stride) {
    picked.push_back(items[i]);
    if (stride > size || -stride > size) break;  // and i cannot overflow
  }
  if (value.is_list()) return Value::Of(std::move(picked), value.is_tuple());
  std::string text;
  for (const Value& one : picked) text += one.string();
  return Value::Of(std::move(text));
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) return Fault(absl::StrCat(item.TypeName(), " in a string"));
    return container.string().find(item.string()) != std::string::npos;
  }
  if (container.is_list()) {
    return std::ranges::any_of(container.list(),
                               [&item](const Value& one) { return Equal(one, item); });
  }
  if (container.is_dict()) return item.is_string() && container.Find(item.string()) != nullptr;
  if (container.is_undefined()) return false;
  return Fault(absl::StrCat("'in' needs a container, not ", container.TypeName()));
}

absl::StatusOr<List> Iterate(const Value& value) {
  List out;
  if (value.is_list()) return value.list();
  if (value.is_undefined()) return out;
  if (value.is_string()) {
    const std::string& text = value.string();
    for (size_t at = 0; at < text.size();) {
      const size_t next = CodePointEnd(text, at);
      out.push_back(Value::Of(text.substr(at, next - at)));
      at = next;
    }
    return out;
  }
  if (value.is_dict() && !value.is_namespace()) {
    for (const auto& member : value.dict()) out.push_back(Value::Of(member.first));
    return out;
  }
  return Fault(absl::StrCat(value.TypeName(), " cannot be iterated"));
}

int64_t LengthOf(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return CountCodePoints(value.string());
  if (value.is_list()) return static_cast<int64_t>(value.list().size());
  if (value.is_dict() && !value.is_namespace()) return static_cast<int64_t>(value.dict().size());
  return -1;
}

bool IsTest(std::string_view name) {
  return IsAny(name, "defined", "undefined", "none", "string", "mapping", "iterable", "sequence",
               "number", "integer", "float", "boolean", "true", "false", "callable", "even", "odd",
               "divisibleby", "in", "eq", "equalto", "ne", "lt", "lessthan", "le", "gt",
               "greaterthan", "ge", "sameas", "lower", "upper");
}

namespace {

absl::StatusOr<bool> ApplyComparison(std::string_view name, const Value& value,
                                     const Value& other) {
  if (name == "in") return Contains(other, value);
  if (IsAny(name, "eq", "equalto")) return Equal(value, other);
  if (name == "ne") return !Equal(value, other);
  if (name == "sameas") {
    return value.is_bool() == other.is_bool() && value.is_float() == other.is_float() &&
           Equal(value, other);
  }
  if (name == "divisibleby") {
    if (!value.AsInt() || other.AsInt().value_or(0) == 0)
      return Fault("divisibleby needs integers");
    return *other.AsInt() == -1 || *value.AsInt() % *other.AsInt() == 0;
  }
  ASSIGN_OR_RETURN(const int order, Compare(value, other));
  if (IsAny(name, "lt", "lessthan")) return order < 0;
  if (name == "le") return order <= 0;
  return name == "ge" ? order >= 0 : order > 0;
}

}  // namespace

absl::StatusOr<bool> ApplyTest(std::string_view name, const Value& value, const Arguments& args) {
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.is_string();
  if (name == "mapping") return value.is_dict() && !value.is_namespace();
  if (name == "iterable" || name == "sequence") {
    return value.is_string() || value.is_list() || value.is_undefined() ||
           (value.is_dict() && !value.is_namespace());
  }
  if (name == "number") return value.is_number();
  if (name == "integer") return value.is_int();
  if (name == "float") return value.is_float();
  if (name == "boolean") return value.is_bool();
  if (name == "true") return value.is_bool() && value.IsTrue();
  if (name == "false") return value.is_bool() && !value.IsTrue();
  if (name == "callable") return value.macro() != nullptr;
  if (name == "even" || name == "odd") {
    if (!value.AsInt()) return Fault(absl::StrCat(std::string(name), " needs an integer"));
    return (*value.AsInt() % 2 == 0) == (name == "even");
  }
  if (name == "lower" || name == "upper") {
    const std::string text = ToString(value);
    return text == (name == "lower" ? ToLower(text) : ToUpper(text)) &&
           ToLower(text) != ToUpper(text);
  }
  const Value* other = args.Find(0, "other");
  if (other == nullptr)
    return Fault(absl::StrCat("test '", std::string(name), "' needs an argument"));
  return ApplyComparison(name, value, *other);
}

}  // namespace quire::jinja
