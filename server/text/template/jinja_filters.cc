// The filters of chat templates.
#include "server/text/template/jinja_filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/template/jinja_format.h"
#include "server/text/template/jinja_methods.h"
#include "server/text/template/jinja_text.h"

namespace quire::jinja {
namespace {

using Filter = absl::StatusOr<Value> (*)(const Value&, const Arguments&);

absl::Status Fault(const std::string& reason) { return absl::InvalidArgumentError(reason); }

std::string StringOr(const Arguments& args, size_t index, std::string_view name,
                     const std::string& otherwise) {
  const Value* value = args.Find(index, name);
  return value == nullptr || value->is_none() ? otherwise : ToString(*value);
}
bool FlagOr(const Arguments& args, size_t index, std::string_view name, bool otherwise) {
  const Value* value = args.Find(index, name);
  return value == nullptr ? otherwise : value->IsTrue();
}
int64_t IntOr(const Arguments& args, size_t index, std::string_view name, int64_t otherwise) {
  const Value* value = args.Find(index, name);
  return value == nullptr ? otherwise : value->AsInt().value_or(otherwise);
}

absl::StatusOr<Value> Trim(const Value& value, const Arguments& args) {
  const std::string text = ToString(value);
  const Value* characters = args.Find(0, "chars");
  const bool given = characters != nullptr && characters->is_string();
  return Value::Of(std::string(given ? Strip(text, Side::kBoth, characters->string())
                                     : Strip(text, Side::kBoth)));
}

absl::StatusOr<Value> Length(const Value& value, const Arguments&) {
  const int64_t length = LengthOf(value);
  if (length < 0) return Fault(absl::StrCat(value.TypeName(), " has no length"));
  return Value::Of(length);
}

absl::StatusOr<Value> Default(const Value& value, const Arguments& args) {
  const bool missing =
      value.is_undefined() || (FlagOr(args, 1, "boolean", false) && !value.IsTrue());
  if (!missing) return value;
  const Value* otherwise = args.Find(0, "default_value");
  return otherwise == nullptr ? Value::Of("") : *otherwise;
}

absl::StatusOr<Value> ToJsonFilter(const Value& value, const Arguments& args) {
  JsonStyle style;
  // Positions as in transformers' tojson: ensure_ascii, indent, separators, sort_keys.
  if (FlagOr(args, 0, "ensure_ascii", false)) return Fault("tojson: ensure_ascii is not supported");
  style.indent = static_cast<int>(std::clamp<int64_t>(IntOr(args, 1, "indent", -1), -1, 16));
  if (style.indent >= 0) style.item_separator = ",";
  const Value* separators = args.Find(2, "separators");
  if (separators != nullptr && separators->is_list() && separators->list().size() == 2) {
    style.item_separator = ToString(separators->list()[0]);
    style.key_separator = ToString(separators->list()[1]);
  }
  style.sort_keys = FlagOr(args, 3, "sort_keys", false);
  ASSIGN_OR_RETURN(std::string text, ToJson(value, style));
  return Value::Of(std::move(text));
}

absl::StatusOr<Value> Join(const Value& value, const Arguments& args) {
  ASSIGN_OR_RETURN(const List items, Iterate(value));
  const std::string between = StringOr(args, 0, "d", "");
  const Value* attribute = args.Find(1, "attribute");
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += between;
    if (attribute == nullptr) {
      out += ToString(items[i]);
    } else {
      ASSIGN_OR_RETURN(const Value member, GetAttribute(items[i], ToString(*attribute)));
      out += ToString(member);
    }
  }
  return Value::Of(std::move(out));
}

absl::StatusOr<Value> ReplaceFilter(const Value& value, const Arguments& args) {
  if (args.positional.size() < 2) return Fault("replace needs what to replace and by what");
  const int64_t limit = IntOr(args, 2, "count", -1);
  return Value::Of(
      Replace(ToString(value), ToString(args.positional[0]), ToString(args.positional[1]), limit));
}

absl::StatusOr<Value> First(const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(const List items, Iterate(value));
  return items.empty() ? Value::MakeUndefined("first") : items.front();
}
absl::StatusOr<Value> Last(const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(const List items, Iterate(value));
  return items.empty() ? Value::MakeUndefined("last") : items.back();
}
absl::StatusOr<Value> ListFilter(const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(List items, Iterate(value));
  return Value::Of(std::move(items));
}
absl::StatusOr<Value> StringFilter(const Value& value, const Arguments&) {
  return Value::Of(ToString(value));
}

absl::StatusOr<Value> IntFilter(const Value& value, const Arguments& args) {
  const Value otherwise = Value::Of(IntOr(args, 0, "default", 0));
  if (value.is_float()) {
    const double v = std::trunc(value.AsDouble());
    return std::fabs(v) < 9e18 ? Value::Of(static_cast<int64_t>(v)) : otherwise;
  }
  if (value.is_number()) return Value::Of(*value.AsInt());
  const std::string text(Strip(ToString(value), Side::kBoth));
  int64_t number = 0;
  const char* const begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto read = std::from_chars(begin, text.data() + text.size(), number);
  if (read.ec == std::errc() && read.ptr == text.data() + text.size()) return Value::Of(number);
  char* end = nullptr;
  const double real = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(std::fabs(real) < 9e18)) return otherwise;
  return Value::Of(static_cast<int64_t>(real));
}

absl::StatusOr<Value> FloatFilter(const Value& value, const Arguments& args) {
  if (value.is_number()) return Value::Of(value.AsDouble());
  const std::string text(Strip(ToString(value), Side::kBoth));
  char* end = nullptr;
  const double real = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0') return Value::Of(real);
  const Value* otherwise = args.Find(0, "default");
  return otherwise != nullptr ? *otherwise : Value::Of(0.0);
}

absl::StatusOr<Value> Abs(const Value& value, const Arguments&) {
  if (!value.is_number()) return Fault(absl::StrCat("abs of ", value.TypeName()));
  if (value.is_float()) return Value::Of(std::fabs(value.AsDouble()));
  if (*value.AsInt() == INT64_MIN) return Fault("integer out of range");
  return Value::Of(std::abs(*value.AsInt()));
}

absl::StatusOr<Value> Reverse(const Value& value, const Arguments&) {
  return GetSlice(value, Value(), Value(), Value::Of(int64_t{-1}));
}

absl::StatusOr<Value> Items(const Value& value, const Arguments&) {
  if (value.is_undefined()) return Value::Of(List{});
  if (!value.is_dict()) return Fault(absl::StrCat("items of ", value.TypeName()));
  return CallMethod("items", value, {});
}

// The key for sorting and comparing: the item or its attribute; text ignores case.
absl::StatusOr<Value> SortKey(const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = item;
  if (attribute != nullptr && !attribute->is_none()) {
    if (attribute->AsInt().has_value()) {
      ASSIGN_OR_RETURN(key, GetItem(item, *attribute));
    } else {
      ASSIGN_OR_RETURN(key, GetAttribute(item, ToString(*attribute)));
    }
  }
  if (!case_sensitive && key.is_string()) return Value::Of(ToLower(key.string()));
  return key;
}

absl::StatusOr<List> SortedBy(List keys, List items, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (size_t i = 1; i < keys.size(); ++i) {
    if (auto comparable = Compare(keys[0], keys[i]); !comparable.ok()) return comparable.status();
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const int sign = Compare(keys[a], keys[b]).value_or(0);
    return reverse ? sign > 0 : sign < 0;
  });
  List out;
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

absl::StatusOr<Value> Sort(const Value& value, const Arguments& args) {
  ASSIGN_OR_RETURN(List items, Iterate(value));
  List keys;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, SortKey(item, args.Find(2, "attribute"),
                                        FlagOr(args, 1, "case_sensitive", false)));
    keys.push_back(std::move(key));
  }
  ASSIGN_OR_RETURN(List sorted,
                   SortedBy(std::move(keys), std::move(items), FlagOr(args, 0, "reverse", false)));
  return Value::Of(std::move(sorted));
}

absl::StatusOr<Value> DictSort(const Value& value, const Arguments& args) {
  ASSIGN_OR_RETURN(const Value pairs, Items(value, {}));
  const bool by_value = StringOr(args, 1, "by", "key") == "value";
  List keys;
  for (const Value& pair : pairs.list()) {
    ASSIGN_OR_RETURN(Value key, SortKey(pair.list()[by_value ? 1 : 0], nullptr,
                                        FlagOr(args, 0, "case_sensitive", false)));
    keys.push_back(std::move(key));
  }
  ASSIGN_OR_RETURN(List sorted,
                   SortedBy(std::move(keys), pairs.list(), FlagOr(args, 2, "reverse", false)));
  return Value::Of(std::move(sorted));
}

absl::StatusOr<Value> Unique(const Value& value, const Arguments& args) {
  ASSIGN_OR_RETURN(const List items, Iterate(value));
  List keys, out;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, SortKey(item, args.Find(1, "attribute"),
                                        FlagOr(args, 0, "case_sensitive", false)));
    if (std::ranges::any_of(keys, [&key](const Value& seen) { return Equal(seen, key); })) continue;
    keys.push_back(std::move(key));
    out.push_back(item);
  }
  return Value::Of(std::move(out));
}

absl::StatusOr<Value> Map(const Value& value, const Arguments& args) {
  ASSIGN_OR_RETURN(const List items, Iterate(value));
  const Value* attribute = args.positional.empty() ? args.Find(0, "attribute") : nullptr;
  if (attribute == nullptr && args.positional.empty()) return Fault("map needs a filter");
  const std::string filter = args.positional.empty() ? "" : ToString(args.positional[0]);
  if (attribute == nullptr && !IsFilter(filter)) {
    return Fault(absl::StrCat("filter '", filter.substr(0, 40), "' is not supported"));
  }
  Arguments rest = args;
  if (!rest.positional.empty()) rest.positional.erase(rest.positional.begin());
  const Value* otherwise = args.Find(SIZE_MAX, "default");
  List out;
  for (const Value& item : items) {
    Value mapped;
    if (attribute != nullptr) {
      ASSIGN_OR_RETURN(mapped, GetAttribute(item, ToString(*attribute)));
      if (mapped.is_undefined() && otherwise != nullptr) mapped = *otherwise;
    } else {
      ASSIGN_OR_RETURN(mapped, ApplyFilter(filter, item, rest));
    }
    out.push_back(std::move(mapped));
  }
  return Value::Of(std::move(out));
}

// select, reject and their attribute forms: items for which a test, or truth, equals `wanted`.
absl::StatusOr<Value> SelectIf(const Value& value, const Arguments& args, bool by_attribute,
                               bool wanted) {
  ASSIGN_OR_RETURN(const List items, Iterate(value));
  Arguments rest = args;
  std::string attribute, test;
  if (by_attribute) {
    if (rest.positional.empty()) return Fault("selectattr needs an attribute");
    attribute = ToString(rest.positional[0]);
    rest.positional.erase(rest.positional.begin());
  }
  if (!rest.positional.empty()) {
    test = ToString(rest.positional[0]);
    if (test == "==") test = "eq";
    if (test == "!=") test = "ne";
    rest.positional.erase(rest.positional.begin());
    if (!IsTest(test))
      return Fault(absl::StrCat("test '", test.substr(0, 40), "' is not supported"));
  }
  List out;
  for (const Value& item : items) {
    Value subject = item;
    if (by_attribute) {
      ASSIGN_OR_RETURN(subject, GetAttribute(item, attribute));
    }
    bool passes = subject.IsTrue();
    if (!test.empty()) {
      ASSIGN_OR_RETURN(passes, ApplyTest(test, subject, rest));
    }
    if (passes == wanted) out.push_back(item);
  }
  return Value::Of(std::move(out));
}

absl::StatusOr<Value> Indent(const Value& value, const Arguments& args) {
  const Value* width = args.Find(0, "width");
  const std::string pad =
      width != nullptr && width->is_string()
          ? width->string()
          : std::string(std::clamp<int64_t>(IntOr(args, 0, "width", 4), 0, 256), ' ');
  const bool first = FlagOr(args, 1, "first", false), blank = FlagOr(args, 2, "blank", false);
  const std::string text = ToString(value) + "\n";  // the last line end starts no further line
  const std::vector<std::string_view> lines = SplitLines(text, /*keep_ends=*/false);
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !lines[i].empty()) out += pad;
    out += lines[i];
  }
  return Value::Of(std::move(out));
}

absl::StatusOr<Value> Round(const Value& value, const Arguments& args) {
  if (!value.is_number()) return Fault(absl::StrCat("round of ", value.TypeName()));
  const int64_t digits = IntOr(args, 0, "precision", 0);
  if (digits != 0 || StringOr(args, 1, "method", "common") != "common") {
    return Fault("round with a precision or method is not supported");
  }
  if (!value.is_float()) return value;
  return Value::Of(std::nearbyint(value.AsDouble()));
}

absl::StatusOr<Value> Extreme(const Value& value, int wanted) {
  ASSIGN_OR_RETURN(const List items, Iterate(value));
  if (items.empty()) return Value::MakeUndefined("of an empty list");
  const Value* best = &items[0];
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const int order, Compare(item, *best));
    if (order == wanted) best = &item;
  }
  return *best;
}

absl::StatusOr<Value> Sum(const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(const List items, Iterate(value));
  int64_t sum = 0;
  for (const Value& item : items) {
    if (!item.AsInt() || __builtin_add_overflow(sum, *item.AsInt(), &sum)) {
      return Fault("sum needs integers");
    }
  }
  return Value::Of(sum);
}

template <std::string (*kMap)(std::string_view)>
absl::StatusOr<Value> MapText(const Value& value, const Arguments&) {
  return Value::Of(kMap(ToString(value)));
}
template <bool kByAttribute, bool kWanted>
absl::StatusOr<Value> Select(const Value& value, const Arguments& args) {
  return SelectIf(value, args, kByAttribute, kWanted);
}

struct NamedFilter {
  std::string_view name;
  Filter apply;
};
constexpr NamedFilter kFilters[] = {
    {"abs", Abs},
    {"capitalize", MapText<Capitalize>},
    {"count", Length},
    {"d", Default},
    {"default", Default},
    {"dictsort", DictSort},
    {"first", First},
    {"float", FloatFilter},
    {"indent", Indent},
    {"int", IntFilter},
    {"items", Items},
    {"join", Join},
    {"last", Last},
    {"length", Length},
    {"list", ListFilter},
    {"lower", MapText<ToLower>},
    {"map", Map},
    {"max", [](const Value& value, const Arguments&) { return Extreme(value, 1); }},
    {"min", [](const Value& value, const Arguments&) { return Extreme(value, -1); }},
    {"reject", Select<false, false>},
    {"rejectattr", Select<true, false>},
    {"replace", ReplaceFilter},
    {"reverse", Reverse},
    {"round", Round},
    {"safe", StringFilter},  // no filter escapes
    {"select", Select<false, true>},
    {"selectattr", Select<true, true>},
    {"sort", Sort},
    {"string", StringFilter},
    {"sum", Sum},
    {"title", MapText<Title>},
    {"tojson", ToJsonFilter},
    {"trim", Trim},
    {"unique", Unique},
    {"upper", MapText<ToUpper>},
};

const NamedFilter* FindFilter(std::string_view name) {
  const auto at = std::ranges::find(kFilters, name, &NamedFilter::name);
  return at == std::end(kFilters) ? nullptr : at;
}

}  // namespace

bool IsFilter(std::string_view name) { return FindFilter(name) != nullptr; }

absl::StatusOr<Value> ApplyFilter(std::string_view name, const Value& value,
                                  const Arguments& args) {
  return FindFilter(name)->apply(value, args);
}

}  // namespace quire::jinja
