// The filters of lists: they sort, group, pick and join.
#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/filter_call.h"
#include "server/text/jinja/filters.h"
#include "server/text/jinja/value_tests.h"
#include "server/text/jinja/values/charges.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/jinja/values/fault.h"
#include "server/text/jinja/values/format.h"
#include "server/text/jinja/values/operators.h"
#include "server/text/jinja/values/text.h"

namespace quire::jinja {
namespace {

using Result = absl::StatusOr<Value>;

Value Generator(List items) { return Value::Of(std::move(items), Value::Order::kGenerator); }

// The key of sorting, grouping and the like: the item or its part, text without its case.
Result KeyOf(const Value& item, const Value* attribute, bool case_sensitive, Budget* budget) {
  Value key = item;
  if (attribute != nullptr && !attribute->is_none()) {
    ASSIGN_OR_RETURN(key, GetPath(item, *attribute, budget));
  }
  RETURN_IF_ERROR(budget->Charge(key.weight()));
  if (!case_sensitive && key.is_string()) return Value::Of(ToLower(key.string()));
  return key;
}

absl::StatusOr<List> KeysOf(const List& items, const Value* attribute, bool case_sensitive,
                            Budget* budget) {
  List keys;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, KeyOf(item, attribute, case_sensitive, budget));
    keys.push_back(std::move(key));
  }
  return keys;
}

// Positions of `keys` in stable order.
absl::StatusOr<std::vector<size_t>> OrderOf(const List& keys, bool reverse, Budget* budget) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // A key takes part in about log2 of their number of comparisons. Those of short ones are cheap.
  for (const Value& key : keys) {
    const int64_t cost = (key.weight() - 1) * std::max(key.depth(), 1);
    RETURN_IF_ERROR(budget->Charge(cost * std::bit_width(keys.size())));
  }
  for (size_t i = 1; i < keys.size(); ++i) {
    RETURN_IF_ERROR(Compare(keys[i - 1], keys[i]).status());
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const int sign = Compare(keys[a], keys[b]).value_or(0);
    return reverse ? sign > 0 : sign < 0;
  });
  return order;
}

List Picked(const List& items, const std::vector<size_t>& order) {
  List out;
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

Result Extreme(const FilterCall& call, int wanted) {
  ASSIGN_OR_RETURN(const List items, ChargedItems(call.value, call.budget));
  if (items.empty()) return Value::MakeUndefined("of an empty list");
  ASSIGN_OR_RETURN(const List keys, KeysOf(items, call.arguments[1], call.Flag(0), call.budget));
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const int order, Compare(keys[i], keys[best]));
    if (order == wanted) best = i;
  }
  return items[best];
}

// The arguments behind the first `count`.
Arguments Rest(const Arguments& args, size_t count) {
  Arguments rest = args;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

// Items for which a test, or truth, equals `wanted`; of a part of the item if `by_attribute`.
Result SelectIf(const FilterCall& call, bool by_attribute, bool wanted) {
  if (!call.value.IsTrue()) return Generator({});
  ASSIGN_OR_RETURN(const List items, ChargedItems(call.value, call.budget));
  const Arguments& given = call.given;
  const size_t name_at = by_attribute ? 1 : 0;
  if (given.positional.size() < name_at) return Fault("selectattr needs an attribute");
  const bool has_test = given.positional.size() > name_at;
  const std::string test = has_test ? ToString(given.positional[name_at]) : "";
  const Arguments rest = has_test ? Rest(given, name_at + 1) : Arguments();
  List out;
  for (const Value& item : items) {
    RETURN_IF_ERROR(call.budget->Charge(1));
    Value subject = item;
    if (by_attribute) {
      ASSIGN_OR_RETURN(subject, GetPath(item, given.positional[0], call.budget));
    }
    bool passes = subject.IsTrue();
    if (has_test) {
      ASSIGN_OR_RETURN(passes, ApplyTest(test, subject, rest, call.budget));
    }
    if (passes == wanted) out.push_back(item);
  }
  return Generator(std::move(out));
}

// items of `attribute`, where what is undefined on the way is `otherwise`.
Result MapAttribute(const FilterCall& call, const List& items, const Value& attribute) {
  const Value* otherwise = nullptr;
  for (const auto& [name, value] : call.given.named) {
    if (name == "default") otherwise = &value;
    if (name != "default" && name != "attribute") return Fault("map has no '", name, "'");
  }
  List out;
  for (const Value& item : items) {
    RETURN_IF_ERROR(call.budget->Charge(1));
    ASSIGN_OR_RETURN(Value part, GetPath(item, attribute, call.budget));
    const bool missing = part.is_undefined() && otherwise != nullptr && !otherwise->is_none();
    out.push_back(missing ? *otherwise : std::move(part));
  }
  return Generator(std::move(out));
}

}  // namespace

Result FilterJoin(const FilterCall& call) {
  ASSIGN_OR_RETURN(const List items, ChargedItems(call.value, call.budget));
  const std::string between = call.arguments[0] == nullptr ? "" : ToString(*call.arguments[0]);
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += between;
    Value part = items[i];
    if (call.Has(1)) {
      ASSIGN_OR_RETURN(part, GetPath(items[i], *call.arguments[1], call.budget));
    }
    RETURN_IF_ERROR(call.budget->Charge(part.weight()));
    out += ToString(part);
    RETURN_IF_ERROR(call.budget->CheckText(out.size()));
  }
  return Value::Of(std::move(out));
}

Result FilterSort(const FilterCall& call) {
  ASSIGN_OR_RETURN(const List items, ChargedItems(call.value, call.budget));
  List keys;
  if (call.Has(2) && call.arguments[2]->is_string()) {
    // Several attributes with commas between them.
    List attributes;
    RETURN_IF_ERROR(call.budget->ChargeItems(call.arguments[2]->string().size()));
    for (const std::string_view name : Split(call.arguments[2]->string(), ",", -1)) {
      attributes.push_back(Value::Of(std::string(name)));
    }
    for (const Value& item : items) {
      List parts;
      for (const Value& attribute : attributes) {
        ASSIGN_OR_RETURN(Value key, KeyOf(item, &attribute, call.Flag(1), call.budget));
        parts.push_back(std::move(key));
      }
      keys.push_back(Value::Of(std::move(parts)));
    }
  } else {
    ASSIGN_OR_RETURN(keys, KeysOf(items, call.arguments[2], call.Flag(1), call.budget));
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> order, OrderOf(keys, call.Flag(0), call.budget));
  return Value::Of(Picked(items, order));
}

Result FilterDictSort(const FilterCall& call) {
  if (!call.value.is_dict()) return Fault("dictsort of ", call.value.TypeName());
  const std::string by = call.Text(1, "key");
  if (by != "key" && by != "value") return Fault("dictsort sorts by 'key' or 'value'");
  List keys, items;
  RETURN_IF_ERROR(call.budget->ChargeItems(kItemsOfPair * call.value.dict().size()));
  for (const auto& [key, value] : call.value.dict()) {
    ASSIGN_OR_RETURN(Value sorted_by,
                     KeyOf(by == "value" ? value : key, nullptr, call.Flag(0), call.budget));
    keys.push_back(std::move(sorted_by));
    items.push_back(Value::Of(List{key, value}, Value::Order::kTuple));
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> order, OrderOf(keys, call.Flag(2), call.budget));
  return Value::Of(Picked(items, order));
}

Result FilterGroupBy(const FilterCall& call) {
  if (call.arguments[0] == nullptr) return Fault("groupby needs an attribute");
  ASSIGN_OR_RETURN(const List items, ChargedItems(call.value, call.budget));
  List parts, keys;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value part, GetPath(item, *call.arguments[0], call.budget));
    if (part.is_undefined() && call.Has(1)) part = *call.arguments[1];
    ASSIGN_OR_RETURN(Value key, KeyOf(part, nullptr, call.Flag(2), call.budget));
    parts.push_back(std::move(part));
    keys.push_back(std::move(key));
  }
  ASSIGN_OR_RETURN(const std::vector<size_t> order, OrderOf(keys, /*reverse=*/false, call.budget));
  List out;
  for (size_t at = 0; at < order.size();) {
    const size_t first = order[at];
    List group;
    for (; at < order.size() && Equal(keys[order[at]], keys[first]); ++at) {
      group.push_back(items[order[at]]);
    }
    out.push_back(Value::Of(List{parts[first], Value::Of(std::move(group))}, Value::Order::kTuple));
  }
  return Value::Of(std::move(out));
}

Result FilterUnique(const FilterCall& call) {
  ASSIGN_OR_RETURN(const List items, ChargedItems(call.value, call.budget));
  Dict seen;
  List out;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value key, KeyOf(item, call.arguments[1], call.Flag(0), call.budget));
    if (seen.Find(key) != nullptr) continue;
    if (!seen.Set(key, Value())) return Fault("unique of ", key.TypeName());
    out.push_back(item);
  }
  return Generator(std::move(out));
}

Result FilterMap(const FilterCall& call) {
  if (!call.value.IsTrue()) return Generator({});
  ASSIGN_OR_RETURN(const List items, ChargedItems(call.value, call.budget));
  const Arguments& given = call.given;
  if (given.positional.empty()) {
    const Value* attribute = given.Find(0, "attribute");
    if (attribute == nullptr) return Fault("map needs a filter");
    return MapAttribute(call, items, *attribute);
  }
  const std::string filter = ToString(given.positional[0]);
  const Arguments rest = Rest(given, 1);
  List out;
  for (const Value& item : items) {
    RETURN_IF_ERROR(call.budget->Charge(1));
    ASSIGN_OR_RETURN(Value mapped, ApplyFilter(filter, item, rest, call.budget));
    RETURN_IF_ERROR(ChargeResult(mapped, call.budget));
    out.push_back(std::move(mapped));
  }
  return Generator(std::move(out));
}

Result FilterSelect(const FilterCall& call) { return SelectIf(call, false, true); }
Result FilterReject(const FilterCall& call) { return SelectIf(call, false, false); }
Result FilterSelectAttr(const FilterCall& call) { return SelectIf(call, true, true); }
Result FilterRejectAttr(const FilterCall& call) { return SelectIf(call, true, false); }

Result FilterMax(const FilterCall& call) { return Extreme(call, 1); }
Result FilterMin(const FilterCall& call) { return Extreme(call, -1); }

Result FilterSum(const FilterCall& call) {
  ASSIGN_OR_RETURN(const List items, ChargedItems(call.value, call.budget));
  Value sum = call.arguments[1] != nullptr ? *call.arguments[1] : Value::Of(int64_t{0});
  if (sum.is_string()) return Fault("sum of strings");
  for (const Value& item : items) {
    Value part = item;
    if (call.Has(0)) {
      ASSIGN_OR_RETURN(part, GetPath(item, *call.arguments[0], call.budget));
    }
    ASSIGN_OR_RETURN(sum, Add(sum, part, call.budget));
  }
  return sum;
}

Result FilterBatch(const FilterCall& call) {
  ASSIGN_OR_RETURN(const List items, ChargedItems(call.value, call.budget));
  ASSIGN_OR_RETURN(const int64_t size, call.Int(0, 0));
  if (size < 1 || size > 1'000'000) return Fault("batch needs a size");
  List out, batch;
  for (const Value& item : items) {
    if (static_cast<int64_t>(batch.size()) == size)
      out.push_back(Value::Of(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (call.Has(1)) RETURN_IF_ERROR(call.budget->ChargeItems(static_cast<size_t>(size)));
    while (call.Has(1) && static_cast<int64_t>(batch.size()) < size) {
      batch.push_back(*call.arguments[1]);
    }
    out.push_back(Value::Of(std::move(batch)));
  }
  return Generator(std::move(out));
}

Result FilterSlice(const FilterCall& call) {
  ASSIGN_OR_RETURN(const List items, ChargedItems(call.value, call.budget));
  ASSIGN_OR_RETURN(const int64_t slices, call.Int(0, 0));
  if (slices < 1 || slices > 1'000'000) return Fault("slice needs a number of slices");
  RETURN_IF_ERROR(call.budget->Charge(slices));
  const int64_t size = static_cast<int64_t>(items.size());
  const int64_t each = size / slices, longer = size % slices;
  List out;
  for (int64_t i = 0, at = 0; i < slices; ++i) {
    const int64_t count = each + (i < longer ? 1 : 0);
    List part(items.begin() + at, items.begin() + at + count);
    if (call.Has(1) && i >= longer) part.push_back(*call.arguments[1]);
    out.push_back(Value::Of(std::move(part)));
    at += count;
  }
  return Generator(std::move(out));
}

}  // namespace quire::jinja
