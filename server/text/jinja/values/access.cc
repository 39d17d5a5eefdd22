// Attributes, items, slices and iteration of values.
#include "server/text/jinja/values/access.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/values/callable.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/jinja/values/fault.h"
#include "server/text/jinja/values/format.h"
#include "server/text/jinja/values/methods.h"
#include "server/text/jinja/values/text.h"
#include "server/text/unicode/unicode.h"

namespace quire::jinja {
namespace {

// Python's rule for an index from the end.
int64_t FromEnd(int64_t index, int64_t size) { return index < 0 ? index + size : index; }

Value Method(const Value& object, const std::string& name) {
  auto method = std::make_shared<Callable>();
  method->name = name;
  method->object = object;
  method->depth = object.depth() + 1;
  return Value::Of(std::shared_ptr<const Callable>(std::move(method)));
}

absl::StatusOr<Value> LoopAttribute(const Value& value, const std::string& name) {
  Loop& loop = *value.callable()->loop;
  if (name == "index") return Value::Of(loop.index + 1);
  if (name == "index0") return Value::Of(loop.index);
  if (name == "first") return Value::Of(loop.index == 0);
  if (name == "depth") return Value::Of(int64_t{loop.depth});
  if (name == "depth0") return Value::Of(int64_t{loop.depth} - 1);
  if (name == "previtem" && loop.index > 0) return loop.items[loop.index - 1];
  if (name == "cycle" || name == "changed") return Method(value, name);
  if (name == "last" || name == "nextitem") {
    ASSIGN_OR_RETURN(const int64_t known, ReadItems(&loop, loop.index + 2));
    if (name == "last") return Value::Of(loop.index + 1 == known);
    if (loop.index + 1 < known) return loop.items[loop.index + 1];
  }
  if (name == "revindex" || name == "revindex0" || name == "length") {
    ASSIGN_OR_RETURN(const int64_t size, ReadItems(&loop, INT64_MAX));
    return Value::Of(name == "length" ? size : size - loop.index - (name == "revindex0" ? 1 : 0));
  }
  return Value::MakeUndefined(name);
}

// Attributes of Python's dict that the sandbox hides, even if the dict has such keys.
bool IsHidden(const Value& value, const std::string& name) {
  static constexpr std::string_view kMutators[] = {"clear", "pop", "popitem", "setdefault",
                                                   "update"};
  return value.is_dict() && std::ranges::find(kMutators, name) != std::end(kMutators);
}

bool IsLoop(const Value& value) {
  return value.callable() != nullptr && value.callable()->loop != nullptr;
}

const Value* Member(const Value& value, const std::string& name) {
  return value.is_dict() || value.is_namespace() ? value.dict().Find(name) : nullptr;
}

}  // namespace

const Value* Arguments::Find(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  const auto at = std::ranges::find(named, name, &std::pair<std::string, Value>::first);
  return at == named.end() ? nullptr : &at->second;
}

absl::StatusOr<Value> GetAttribute(const Value& value, const std::string& name) {
  if (value.is_undefined()) {
    return Fault(value.TypeName(), " has no attribute '", name, "'");
  }
  if (IsLoop(value)) return LoopAttribute(value, name);
  if (HasMethod(value, name)) return Method(value, name);
  const Value* member = IsHidden(value, name) ? nullptr : Member(value, name);
  return member != nullptr ? *member : Value::MakeUndefined(name);
}

absl::StatusOr<Value> GetItem(const Value& value, const Value& key) {
  if (value.is_undefined()) return Fault(value.TypeName(), " has no items");
  if (value.is_dict()) {
    if (const Value* member = value.dict().Find(key); member != nullptr) return *member;
  }
  if (key.is_string()) {
    // As in jinja2, a name that is no key may be one of an attribute.
    if (value.is_dict() && !HasMethod(value, key.string()))
      return Value::MakeUndefined(key.string());
    return GetAttribute(value, key.string());
  }
  const std::optional<int64_t> index = key.AsInt();
  if (!index.has_value() || !(value.is_string() || value.is_indexed())) {
    return Value::MakeUndefined(ToString(key));
  }
  ASSIGN_OR_RETURN(const int64_t size, LengthOf(value));
  const int64_t at = FromEnd(*index, size);
  if (at < 0 || at >= size) return Value::MakeUndefined(ToString(key));
  if (value.is_indexed()) return value.list()[at];
  const std::string& text = value.string();
  const size_t begin = ByteAt(text, at);
  return Value::Of(text.substr(begin, CodePointEnd(text, begin) - begin), value.is_safe());
}

absl::StatusOr<Value> GetPath(const Value& value, const Value& path, Budget* budget) {
  RETURN_IF_ERROR(budget->Charge(path.weight()));
  if (!path.is_string()) {
    if (value.is_string()) RETURN_IF_ERROR(budget->ChargeText(value.string().size()));
    return GetItem(value, path);
  }
  Value at = value;
  for (const std::string_view part : Split(path.string(), ".", -1)) {
    RETURN_IF_ERROR(budget->Charge(at.is_string() ? at.weight() : 1));
    int64_t index = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = !part.empty() && read.ec == std::errc() && part[0] != '-' &&
                        read.ptr == part.data() + part.size();
    ASSIGN_OR_RETURN(at, GetItem(at, number ? Value::Of(index) : Value::Of(std::string(part))));
  }
  return at;
}

absl::StatusOr<Value> GetSlice(const Value& value, const Value& start, const Value& stop,
                               const Value& step) {
  if (value.is_undefined()) return Fault(value.TypeName(), " has no slices");
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is_none() && !bound->AsInt().has_value()) {
      return Fault("a bound of a slice is ", bound->TypeName(), ", not an integer");
    }
  }
  const int64_t stride = step.AsInt().value_or(1);
  if (!value.is_indexed() && !value.is_string()) return Fault("a slice of ", value.TypeName());
  if (stride == 0) return Fault("a slice with step 0");
  ASSIGN_OR_RETURN(const int64_t size, LengthOf(value));
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
    return Value::Of(first < last ? text.substr(begin, length) : std::string(), value.is_safe());
  }
  const auto for_each_index = [&](const auto& take) {
    for (int64_t i = first; stride > 0 ? i < last : i > last; i += stride) {
      take(static_cast<size_t>(i));
      if (stride > size || stride < -size) break;  // and i cannot overflow
    }
  };
  if (value.is_indexed()) {
    List picked;
    for_each_index([&](size_t i) { picked.push_back(value.list()[i]); });
    return Value::Of(std::move(picked), value.order());
  }
  const std::string& source = value.string();
  std::vector<size_t> begins;  // of code points, and the end of the last one
  for (size_t at = 0; at < source.size(); at = CodePointEnd(source, at)) begins.push_back(at);
  begins.push_back(source.size());
  std::string text;
  for_each_index([&](size_t i) { text.append(source, begins[i], begins[i + 1] - begins[i]); });
  return Value::Of(std::move(text), value.is_safe());
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) return Fault(item.TypeName(), " in a string");
    return FindFirst(container.string(), item.string()) != std::string::npos;
  }
  if (container.is_ordered(Value::Order::kGenerator)) {
    size_t& at = container.taken();
    while (at < container.list().size()) {
      if (EqualItems(container.list()[at++], item)) return true;
    }
    return false;
  }
  if (container.is_sequence()) {
    return std::ranges::any_of(container.list(),
                               [&item](const Value& one) { return EqualItems(one, item); });
  }
  if (container.is_dict()) {
    const bool mutable_item = item.is_ordered(Value::Order::kList) || item.is_dict();
    if (mutable_item) return Fault(item.TypeName(), " in a dict");
    return container.dict().Find(item) != nullptr;
  }
  if (container.is_undefined()) return false;
  return Fault("'in' needs a container, not ", container.TypeName());
}

absl::StatusOr<List> Iterate(const Value& value) {
  List out;
  if (value.is_ordered(Value::Order::kGenerator)) {
    const size_t begin = std::exchange(value.taken(), value.list().size());
    return List(value.list().begin() + static_cast<std::ptrdiff_t>(begin), value.list().end());
  }
  if (value.is_sequence()) return value.list();
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
  if (value.is_dict()) {
    for (const auto& member : value.dict()) out.push_back(member.first);
    return out;
  }
  return Fault(value.TypeName(), " cannot be iterated");
}

absl::StatusOr<int64_t> LengthOf(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return CountCodePoints(value.string());
  if (value.is_ordered(Value::Order::kGenerator)) return -1;
  if (value.is_sequence()) return static_cast<int64_t>(value.list().size());
  if (value.is_dict()) return static_cast<int64_t>(value.dict().size());
  if (IsLoop(value)) return ReadItems(value.callable()->loop.get(), INT64_MAX);
  return -1;
}

}  // namespace quire::jinja
