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
  return Value::Of(std::shared_ptr<const Callable>(std::move(method)));
}

Value LoopAttribute(const Value& value, const std::string& name) {
  const Loop& loop = *value.callable()->loop;
  const int64_t size = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::Of(loop.index + 1);
  if (name == "index0") return Value::Of(loop.index);
  if (name == "revindex") return Value::Of(size - loop.index);
  if (name == "revindex0") return Value::Of(size - loop.index - 1);
  if (name == "first") return Value::Of(loop.index == 0);
  if (name == "last") return Value::Of(loop.index + 1 == size);
  if (name == "length") return Value::Of(size);
  if (name == "depth") return Value::Of(int64_t{loop.depth});
  if (name == "depth0") return Value::Of(int64_t{loop.depth} - 1);
  if (name == "previtem" && loop.index > 0) return loop.items[loop.index - 1];
  if (name == "nextitem" && loop.index + 1 < size) return loop.items[loop.index + 1];
  if (name == "cycle" || name == "changed") return Method(value, name);
  return Value::MakeUndefined(name);
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
  const Value* member = Member(value, name);
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
  const int64_t size = LengthOf(value), at = FromEnd(*index, size);
  if (at < 0 || at >= size) return Value::MakeUndefined(ToString(key));
  if (value.is_indexed()) return value.list()[at];
  const std::string& text = value.string();
  const size_t begin = ByteAt(text, at);
  return Value::Of(text.substr(begin, CodePointEnd(text, begin) - begin), value.is_safe());
}

absl::StatusOr<Value> GetPath(const Value& value, const Value& path) {
  if (!path.is_string()) return GetItem(value, path);
  Value at = value;
  for (const std::string_view part : Split(path.string(), ".", -1)) {
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
    return Value::Of(first < last ? text.substr(begin, length) : std::string(), value.is_safe());
  }
  const bool contiguous = value.is_indexed();
  List letters;
  if (!contiguous) {
    ASSIGN_OR_RETURN(letters, Iterate(value));
  }
  const List& items = contiguous ? value.list() : letters;
  List picked;
  for (int64_t i = first; stride > 0 ? i < last : i > last; i += stride) {
    picked.push_back(items[i]);
    if (stride > size || -stride > size) break;  // and i cannot overflow
  }
  if (contiguous) return Value::Of(std::move(picked), value.order());
  std::string text;
  for (const Value& one : picked) text += one.string();
  return Value::Of(std::move(text), value.is_safe());
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) return Fault(item.TypeName(), " in a string");
    return container.string().find(item.string()) != std::string::npos;
  }
  if (container.is_ordered(Value::Order::kGenerator)) {
    size_t& at = container.taken();
    while (at < container.list().size()) {
      if (Equal(container.list()[at++], item)) return true;
    }
    return false;
  }
  if (container.is_sequence()) {
    return std::ranges::any_of(container.list(),
                               [&item](const Value& one) { return Equal(one, item); });
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

int64_t LengthOf(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return CountCodePoints(value.string());
  if (value.is_ordered(Value::Order::kGenerator)) return -1;
  if (value.is_sequence()) return static_cast<int64_t>(value.list().size());
  if (value.is_dict()) return static_cast<int64_t>(value.dict().size());
  if (IsLoop(value)) return static_cast<int64_t>(value.callable()->loop->items.size());
  return -1;
}

}  // namespace quire::jinja
