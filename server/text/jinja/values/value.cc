// Truth, equality, order and hashes of template values.
#include "server/text/jinja/values/value.h"

#include <algorithm>
#include <cmath>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "server/text/jinja/values/callable.h"
#include "server/text/jinja/values/dict.h"

namespace quire::jinja {
namespace {

constexpr int64_t kMaxWeight = int64_t{1} << 40;  // so that sums do not overflow
constexpr int64_t kTextBytesOfWeight = 64;

Value::Extent ExtentOf(const Dict& members) {
  Value::Extent extent;
  for (const auto& [key, value] : members) {
    extent.Add(key);
    extent.Add(value);
  }
  return extent;
}

bool IsNan(const Value& value) { return value.is_float() && std::isnan(value.AsDouble()); }

}  // namespace

void Value::Extent::Add(const Value& part) {
  depth = std::max(depth, part.depth() + 1);
  weight = std::min(weight + part.weight(), kMaxWeight);
  has_namespace = has_namespace || part.Has(Changing::kNamespace);
  has_callable = has_callable || part.Has(Changing::kCallable);
}

Value Value::Of(List v, Order order) {
  Extent extent;
  for (const Value& item : v) extent.Add(item);
  auto taken = order == Order::kGenerator ? std::make_shared<size_t>(0) : nullptr;
  return Value(
      Sequence{std::make_shared<const List>(std::move(v)), std::move(taken), order, extent});
}

Value Value::Of(Dict v) {
  const Extent extent = ExtentOf(v);
  return Value(Mapping{std::make_shared<Dict>(std::move(v)), /*is_namespace=*/false, extent});
}

Value Value::MakeNamespace(Dict members) {
  return Value(Mapping{std::make_shared<Dict>(std::move(members)), /*is_namespace=*/true, {}});
}

int Value::depth() const {
  if (const auto* sequence = std::get_if<Sequence>(&data_)) return sequence->extent.depth;
  if (const auto* mapping = std::get_if<Mapping>(&data_)) return mapping->extent.depth;
  return callable() == nullptr ? 0 : callable()->depth;
}

int64_t Value::weight() const {
  if (is_string()) return 1 + static_cast<int64_t>(string().size()) / kTextBytesOfWeight;
  if (const auto* sequence = std::get_if<Sequence>(&data_)) return sequence->extent.weight;
  if (is_namespace()) return ExtentOf(dict()).weight;
  if (const auto* mapping = std::get_if<Mapping>(&data_)) return mapping->extent.weight;
  return 1;  // a callable too: only its name is printed
}

bool Value::Has(Changing kind) const {
  const auto in = [kind](const Extent& extent) {
    return kind == Changing::kNamespace ? extent.has_namespace : extent.has_callable;
  };
  if (is_namespace() || callable() != nullptr)
    return is_namespace() == (kind == Changing::kNamespace);
  if (const auto* sequence = std::get_if<Sequence>(&data_)) return in(sequence->extent);
  return is_dict() && in(std::get<Mapping>(data_).extent);
}

const Callable* Value::callable() const {
  const auto* const at = std::get_if<std::shared_ptr<const Callable>>(&data_);
  return at == nullptr ? nullptr : at->get();
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
  if (is_sequence()) return order() == Order::kGenerator || !list().empty();
  if (is_dict()) return !dict().empty();
  return true;
}

std::string Value::TypeName() const {
  if (is_undefined())
    return name().empty() ? "undefined" : absl::StrCat("undefined '", name(), "'");
  if (is_none()) return "None";
  if (is_bool()) return "a boolean";
  if (is_int()) return "an integer";
  if (is_float()) return "a float";
  if (is_string()) return "a string";
  if (is_dict()) return "a dict";
  if (is_namespace()) return "a namespace";
  if (!is_sequence()) return absl::StrCat("'", callable()->name, "'");
  switch (order()) {
    case Order::kList: return "a list";
    case Order::kTuple: return "a tuple";
    case Order::kRange: return "a range";
    case Order::kKeys:
    case Order::kValues:
    case Order::kItems: return "a view of a dict";
    case Order::kGenerator: return "a generator";
  }
  return "a sequence";
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return a.AsInt() == b.AsInt();
    return a.AsDouble() == b.AsDouble();
  }
  if (a.is_string() && b.is_string()) {
    return &a.string() == &b.string() || a.string() == b.string();
  }
  if (a.is_sequence() && b.is_sequence()) {
    if (&a.list() == &b.list() || !a.is_indexed() || !b.is_indexed()) {
      return &a.list() == &b.list();
    }
    return a.order() == b.order() && std::ranges::equal(a.list(), b.list(), EqualItems);
  }
  if (a.is_dict() && b.is_dict()) {
    if (&a.dict() == &b.dict()) return true;
    return a.dict().size() == b.dict().size() && std::ranges::all_of(a.dict(), [&](const auto& m) {
             const Value* other = b.dict().Find(m.first);
             return other != nullptr && EqualItems(m.second, *other);
           });
  }
  if (a.is_namespace() && b.is_namespace()) return &a.dict() == &b.dict();
  if (a.is_undefined() || a.is_none()) {
    return a.is_undefined() ? b.is_undefined() : b.is_none();
  }
  return a.callable() != nullptr && a.callable() == b.callable();
}

bool EqualItems(const Value& a, const Value& b) { return Equal(a, b) || (IsNan(a) && IsNan(b)); }

std::optional<size_t> HashOf(const Value& value) {
  if (value.is_string()) return absl::HashOf(std::string_view(value.string()));
  if (value.is_float()) {
    const double v = value.AsDouble();
    // 1.0 and 1 are one key.
    if (std::trunc(v) == v && std::fabs(v) < 9e18) return absl::HashOf(static_cast<int64_t>(v));
    return absl::HashOf(v);
  }
  if (value.is_number()) return absl::HashOf(*value.AsInt());
  if (value.is_none()) return 1;
  if (value.is_undefined()) return 2;
  if (value.is_ordered(Value::Order::kTuple)) {
    size_t hash = 3;
    for (const Value& item : value.list()) {
      const std::optional<size_t> part = HashOf(item);
      if (!part.has_value()) return std::nullopt;
      hash = absl::HashOf(hash, *part);
    }
    return hash;
  }
  return std::nullopt;
}

absl::StatusOr<int> Compare(const Value& a, const Value& b) {
  const auto sign = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_number() && b.is_number()) {
    if (!a.is_float() && !b.is_float()) return sign(*a.AsInt(), *b.AsInt());
    return sign(a.AsDouble(), b.AsDouble());
  }
  // UTF-8 sorts as its code points do.
  if (a.is_string() && b.is_string()) return sign(a.string(), b.string());
  const bool lists = a.is_ordered(Value::Order::kList) && b.is_ordered(Value::Order::kList);
  const bool tuples = a.is_ordered(Value::Order::kTuple) && b.is_ordered(Value::Order::kTuple);
  if (lists || tuples) {
    for (size_t i = 0; i < std::min(a.list().size(), b.list().size()); ++i) {
      if (!EqualItems(a.list()[i], b.list()[i])) return Compare(a.list()[i], b.list()[i]);
    }
    return sign(a.list().size(), b.list().size());
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no order between ", a.TypeName(), " and ", b.TypeName()));
}

}  // namespace quire::jinja
