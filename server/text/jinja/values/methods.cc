// Methods of strings, lists, dicts and loops, with Python's rules for their arguments.
#include "server/text/jinja/values/methods.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <utf8proc.h>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/values/callable.h"
#include "server/text/jinja/values/charges.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/jinja/values/fault.h"
#include "server/text/jinja/values/format.h"
#include "server/text/jinja/values/printf.h"
#include "server/text/jinja/values/text.h"
#include "server/text/unicode/unicode.h"

namespace quire::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// How many arguments a method takes, and whether they may be named.
struct Method {
  std::string_view name;
  Result (*call)(std::string_view name, const Value& object, const Arguments& args);
  size_t least, most;
  std::string_view names[2] = {};  // of the arguments that may be named
};

absl::StatusOr<std::string> TextArgument(std::string_view method, const Arguments& args,
                                         size_t index) {
  if (!args.positional[index].is_string()) {
    return Fault(method, ": argument ", index + 1, " is not a string");
  }
  return args.positional[index].string();
}

absl::StatusOr<int64_t> IntArgument(std::string_view method, const Value* value,
                                    int64_t otherwise) {
  if (value == nullptr) return otherwise;
  if (!value->AsInt().has_value()) return Fault(method, " needs an integer");
  return *value->AsInt();
}

Value ListOf(const std::vector<std::string_view>& parts, Value::Order order = Value::Order::kList) {
  List out;
  for (const std::string_view part : parts) out.push_back(Value::Of(std::string(part)));
  return Value::Of(std::move(out), order);
}

Result StripText(std::string_view name, const Value& object, const Arguments& args) {
  const std::string& text = object.string();
  const Side side = name == "strip" ? Side::kBoth : name == "lstrip" ? Side::kLeft : Side::kRight;
  if (args.positional.empty() || args.positional[0].is_none()) {
    return Value::Of(std::string(Strip(text, side)), object.is_safe());
  }
  ASSIGN_OR_RETURN(const std::string characters, TextArgument(name, args, 0));
  return Value::Of(std::string(Strip(text, side, characters)), object.is_safe());
}

Result SplitText(std::string_view name, const Value& object, const Arguments& args) {
  const std::string& text = object.string();
  const Value* separator = args.Find(0, "sep");
  ASSIGN_OR_RETURN(const int64_t limit, IntArgument(name, args.Find(1, "maxsplit"), -1));
  const bool from_right = name == "rsplit";
  if (separator == nullptr || separator->is_none()) {
    return ListOf(SplitSpace(text, limit, from_right));
  }
  if (!separator->is_string() || separator->string().empty()) {
    return Fault("split needs a separator that is not empty");
  }
  return ListOf(Split(text, separator->string(), limit, from_right));
}

Result PartitionText(std::string_view name, const Value& object, const Arguments& args) {
  const std::string_view text = object.string();
  ASSIGN_OR_RETURN(const std::string separator, TextArgument(name, args, 0));
  if (separator.empty()) return Fault(name, " needs a separator that is not empty");
  const bool right = name == "rpartition";
  const size_t at = right ? FindLast(text, separator) : FindFirst(text, separator);
  if (at == text.npos) {
    return right ? ListOf({"", "", text}, Value::Order::kTuple)
                 : ListOf({text, "", ""}, Value::Order::kTuple);
  }
  return ListOf({text.substr(0, at), separator, text.substr(at + separator.size())},
                Value::Order::kTuple);
}

// The part that find, count, startswith and the like look at: arguments 2 and 3 are its bounds.
struct Window {
  std::string_view text;
  int64_t first;  // in code points
  bool valid;     // the begin is not behind the end
};
absl::StatusOr<Window> WindowOf(std::string_view name, const Value& object, const Arguments& args) {
  const std::string_view text = object.string();
  if (args.positional.size() < 2) return Window{text, 0, true};
  const int64_t size = CountCodePoints(text);
  int64_t bounds[2] = {0, size};
  for (size_t i = 1; i < args.positional.size(); ++i) {
    const Value& bound = args.positional[i];
    if (bound.is_none()) continue;
    ASSIGN_OR_RETURN(int64_t at, IntArgument(name, &bound, 0));
    if (at < 0) at = std::max<int64_t>(at + size, 0);
    bounds[i - 1] = i == 1 ? at : std::min(at, size);
  }
  if (bounds[0] > bounds[1]) return Window{"", bounds[0], false};
  const size_t begin = ByteAt(text, bounds[0]), end = ByteAt(text, bounds[1]);
  return Window{text.substr(begin, end - begin), bounds[0], true};
}

Result HasAffix(std::string_view name, const Value& object, const Arguments& args) {
  ASSIGN_OR_RETURN(const Window window, WindowOf(name, object, args));
  const Value& affix = args.positional[0];
  const List alternatives = affix.is_ordered(Value::Order::kTuple) ? affix.list() : List{affix};
  for (const Value& one : alternatives) {
    if (!one.is_string()) return Fault(name, " needs a string");
    const bool has = name == "startswith" ? window.text.starts_with(one.string())
                                          : window.text.ends_with(one.string());
    if (has && window.valid) return Value::Of(true);
  }
  return Value::Of(false);
}

Result FindText(std::string_view name, const Value& object, const Arguments& args) {
  ASSIGN_OR_RETURN(const std::string part, TextArgument(name, args, 0));
  ASSIGN_OR_RETURN(const Window window, WindowOf(name, object, args));
  const std::string_view text = window.text;
  if (name == "count") {
    int64_t count = 0;
    if (!window.valid) return Value::Of(int64_t{0});
    if (part.empty()) return Value::Of(CountCodePoints(text) + 1);
    for (size_t at = FindFirst(text, part); at != text.npos;) {
      at = FindFirst(text, part, at + part.size());
      ++count;
    }
    return Value::Of(count);
  }
  const bool last = name == "rfind" || name == "rindex";
  const size_t at = last ? FindLast(text, part) : FindFirst(text, part);
  if (at == text.npos || !window.valid) {
    if (name.ends_with("index")) return Fault(name, ": the text is not there");
    return Value::Of(int64_t{-1});
  }
  return Value::Of(window.first + CountCodePoints(text.substr(0, at)));
}

// isalpha and the like: the text is not empty and every code point passes.
Result AllOf(std::string_view name, const Value& object, const Arguments&) {
  const std::string& text = object.string();
  if (name == "islower" || name == "isupper") {
    const std::string lower = ToLower(text), upper = ToUpper(text);
    return Value::Of(lower != upper && text == (name == "islower" ? lower : upper));
  }
  if (name == "istitle") return Value::Of(ToLower(text) != ToUpper(text) && text == Title(text));
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeUtf8(text.data() + at);
    const CharClass kind = ClassOf(CharClasses(), c.value);
    const bool letter = kind == CharClass::kLetter, number = kind == CharClass::kNumber;
    const bool decimal =
        utf8proc_category(static_cast<utf8proc_int32_t>(c.value)) == UTF8PROC_CATEGORY_ND;
    const bool passes = name == "isspace"                          ? IsPythonSpace(c.value)
                        : name == "isdigit" || name == "isdecimal" ? decimal
                        : name == "isnumeric"                      ? number
                        : name == "isascii"                        ? c.value < 0x80
                        : name == "isalpha"                        ? letter
                                                                   : letter || number;
    if (!passes) return Value::Of(false);
    at += static_cast<size_t>(c.size);
  }
  return Value::Of(!text.empty() || name == "isascii");
}

Result ReplaceText(std::string_view name, const Value& object, const Arguments& args) {
  ASSIGN_OR_RETURN(const std::string from, TextArgument(name, args, 0));
  ASSIGN_OR_RETURN(const std::string to, TextArgument(name, args, 1));
  ASSIGN_OR_RETURN(const int64_t limit, IntArgument(name, args.Find(2, ""), -1));
  return Value::Of(Replace(object.string(), from, to, limit), object.is_safe());
}

Result JoinText(std::string_view name, const Value& object, const Arguments& args) {
  if (args.positional[0].is_undefined() || args.positional[0].is_none()) {
    return Fault(name, " needs a list");
  }
  ASSIGN_OR_RETURN(const List items, Iterate(args.positional[0]));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) return Fault("join: item ", i, " is not a string");
    if (i > 0) out += object.string();
    out += items[i].string();
  }
  return Value::Of(std::move(out));
}

Result MapText(std::string_view name, const Value& object, const Arguments&) {
  const std::string& text = object.string();
  if (name == "upper") return Value::Of(ToUpper(text), object.is_safe());
  if (name == "lower" || name == "casefold") return Value::Of(ToLower(text), object.is_safe());
  if (name == "swapcase") return Value::Of(SwapCase(text));
  return Value::Of(name == "title" ? Title(text) : Capitalize(text), object.is_safe());
}

Result SplitLinesOf(std::string_view, const Value& object, const Arguments& args) {
  const Value* keep = args.Find(0, "keepends");
  return ListOf(SplitLines(object.string(), keep != nullptr && keep->IsTrue()));
}

Result RemoveAffix(std::string_view name, const Value& object, const Arguments& args) {
  const std::string& text = object.string();
  ASSIGN_OR_RETURN(const std::string affix, TextArgument(name, args, 0));
  if (name == "removeprefix") {
    return Value::Of(text.starts_with(affix) ? text.substr(affix.size()) : text);
  }
  return Value::Of(text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text);
}

// ljust, rjust, center, zfill.
Result PadText(std::string_view name, const Value& object, const Arguments& args) {
  const std::string& text = object.string();
  ASSIGN_OR_RETURN(const int64_t width, IntArgument(name, &args.positional[0], 0));
  std::string fill = name == "zfill" ? "0" : " ";
  if (args.positional.size() > 1) {
    if (name == "zfill") return Fault("zfill takes one argument");
    ASSIGN_OR_RETURN(fill, TextArgument(name, args, 1));
    if (CountCodePoints(fill) != 1) return Fault(name, " needs one character");
  }
  const int64_t size = CountCodePoints(text);
  if (width <= size) return Value::Of(text);
  const int64_t missing = width - size;
  if (missing > int64_t{4} << 20) return Fault(name, ": the width is too large");
  const auto repeat = [&fill](int64_t count) {
    std::string out;
    for (; count > 0; --count) out += fill;
    return out;
  };
  if (name == "ljust") return Value::Of(text + repeat(missing));
  if (name == "rjust") return Value::Of(repeat(missing) + text);
  if (name == "zfill") {
    const size_t sign = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
    return Value::Of(text.substr(0, sign) + repeat(missing) + text.substr(sign));
  }
  // As CPython shares the odd one.
  const int64_t left = missing / 2 + (missing & width & 1);
  return Value::Of(repeat(left) + text + repeat(missing - left));
}

Result GetMember(std::string_view, const Value& object, const Arguments& args) {
  if (!HashOf(args.positional[0]).has_value()) {
    return Fault(args.positional[0].TypeName(), " cannot be a key of a dict");
  }
  const Value* member = object.dict().Find(args.positional[0]);
  if (member != nullptr) return *member;
  return args.positional.size() > 1 ? args.positional[1] : Value::MakeNone();
}

Result ViewDict(std::string_view name, const Value& object, const Arguments&) {
  List out;
  for (const auto& [key, value] : object.dict()) {
    if (name == "keys") out.push_back(key);
    if (name == "values") out.push_back(value);
    if (name == "items") out.push_back(Value::Of(List{key, value}, Value::Order::kTuple));
  }
  return Value::Of(std::move(out), name == "keys"     ? Value::Order::kKeys
                                   : name == "values" ? Value::Order::kValues
                                                      : Value::Order::kItems);
}

// Values do not change, so a copy is the value.
Result Copy(std::string_view, const Value& object, const Arguments&) { return object; }

Result FindInList(std::string_view name, const Value& object, const Arguments& args) {
  int64_t count = 0;
  for (size_t i = 0; i < object.list().size(); ++i) {
    if (!EqualItems(object.list()[i], args.positional[0])) continue;
    if (name == "index") return Value::Of(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") return Fault("index: the item is not there");
  return Value::Of(count);
}

Result CallOnLoop(std::string_view name, const Value& object, const Arguments& args) {
  Loop& loop = *object.callable()->loop;
  if (name == "cycle") {
    if (args.positional.empty()) return Fault("loop.cycle needs values");
    return args.positional[static_cast<size_t>(loop.index) % args.positional.size()];
  }
  const Value seen = Value::Of(args.positional, Value::Order::kTuple);
  // A loop that keeps one of these may keep itself, and its memory would never be freed.
  if (seen.Has(Value::Changing::kCallable) || seen.Has(Value::Changing::kNamespace)) {
    return Fault("loop.changed of a loop, a macro or a namespace is not supported");
  }
  const bool changed = loop.last_seen == nullptr || !Equal(*loop.last_seen, seen);
  if (changed) loop.last_seen = std::make_shared<const Value>(seen);
  return Value::Of(changed);
}

constexpr Method kTextMethods[] = {
    {"capitalize", MapText, 0, 0},
    {"casefold", MapText, 0, 0},
    {"center", PadText, 1, 2},
    {"count", FindText, 1, 3},
    {"endswith", HasAffix, 1, 3},
    {"find", FindText, 1, 3},
    {"index", FindText, 1, 3},
    {"isalnum", AllOf, 0, 0},
    {"isalpha", AllOf, 0, 0},
    {"isascii", AllOf, 0, 0},
    {"isdecimal", AllOf, 0, 0},
    {"isdigit", AllOf, 0, 0},
    {"islower", AllOf, 0, 0},
    {"isnumeric", AllOf, 0, 0},
    {"isspace", AllOf, 0, 0},
    {"istitle", AllOf, 0, 0},
    {"isupper", AllOf, 0, 0},
    {"join", JoinText, 1, 1},
    {"ljust", PadText, 1, 2},
    {"lower", MapText, 0, 0},
    {"lstrip", StripText, 0, 1},
    {"partition", PartitionText, 1, 1},
    {"removeprefix", RemoveAffix, 1, 1},
    {"removesuffix", RemoveAffix, 1, 1},
    {"replace", ReplaceText, 2, 3},
    {"rfind", FindText, 1, 3},
    {"rindex", FindText, 1, 3},
    {"rjust", PadText, 1, 2},
    {"rpartition", PartitionText, 1, 1},
    {"rsplit", SplitText, 0, 2, {"sep", "maxsplit"}},
    {"rstrip", StripText, 0, 1},
    {"split", SplitText, 0, 2, {"sep", "maxsplit"}},
    {"splitlines", SplitLinesOf, 0, 1, {"keepends"}},
    {"startswith", HasAffix, 1, 3},
    {"strip", StripText, 0, 1},
    {"swapcase", MapText, 0, 0},
    {"title", MapText, 0, 0},
    {"upper", MapText, 0, 0},
    {"zfill", PadText, 1, 1},
};
constexpr Method kDictMethods[] = {
    {"copy", Copy, 0, 0},     {"get", GetMember, 1, 2},   {"items", ViewDict, 0, 0},
    {"keys", ViewDict, 0, 0}, {"values", ViewDict, 0, 0},
};
constexpr Method kListMethods[] = {
    {"copy", Copy, 0, 0}, {"count", FindInList, 1, 1}, {"index", FindInList, 1, 1}};
constexpr Method kLoopMethods[] = {{"changed", CallOnLoop, 0, SIZE_MAX},
                                   {"cycle", CallOnLoop, 0, SIZE_MAX}};

template <size_t kSize>
const Method* FindIn(const Method (&table)[kSize], std::string_view name) {
  const auto at = std::ranges::find(table, name, &Method::name);
  return at == std::end(table) ? nullptr : at;
}

const Method* FindMethod(const Value& object, std::string_view name) {
  if (object.is_string()) return FindIn(kTextMethods, name);
  if (object.is_dict()) return FindIn(kDictMethods, name);
  if (object.callable() != nullptr) return FindIn(kLoopMethods, name);
  if (!object.is_indexed()) return nullptr;
  const Method* method = FindIn(kListMethods, name);
  const bool copies = method != nullptr && method->call == Copy;
  return copies && !object.is_ordered(Value::Order::kList) ? nullptr : method;
}

absl::Status CheckCount(const Method& method, const Arguments& args) {
  const size_t count = args.positional.size() + args.named.size();
  if (count < method.least || count > method.most) {
    return Fault(method.name, " does not take ", count, " arguments");
  }
  for (const auto& named : args.named) {
    // Names that a method does not have are empty in the table.
    if (named.first.empty() ||
        std::ranges::find(method.names, named.first) == std::end(method.names)) {
      return Fault(method.name, " has no argument '", named.first, "'");
    }
  }
  return absl::OkStatus();
}

// At least the bytes of the text that join makes.
size_t BoundOfJoined(size_t separator, const Value& parts) {
  size_t bound = 0;
  const auto add = [&](const Value& part) {
    bound += separator + (part.is_string() ? part.string().size() : 0);
  };
  if (parts.is_string()) return parts.string().size() * (1 + separator);
  if (parts.is_sequence()) std::ranges::for_each(parts.list(), add);
  if (parts.is_dict()) {
    for (const auto& member : parts.dict()) add(member.first);
  }
  return bound - std::min(bound, separator);
}

// An upper bound of the text that replace and join make, before they make it.
absl::Status CheckGrowth(std::string_view name, const Value& object, const Arguments& args,
                         Budget* budget) {
  const size_t size = object.string().size();
  size_t bound = 0;
  if (name == "join") {
    bound = BoundOfJoined(size, args.positional[0]);
    if (args.positional[0].is_string()) {
      RETURN_IF_ERROR(budget->ChargeItems(kItemsOfCodePoint * args.positional[0].string().size()));
    }
  } else if (args.positional[0].is_string() && args.positional[1].is_string()) {
    const size_t from = std::max<size_t>(args.positional[0].string().size(), 1);
    const size_t grown = args.positional[1].string().size();
    // Few texts are as bad as the bound, so what is there counts where the bound is too high.
    bound = (size / from + 1) * grown;
    if (bound > budget->limits().output_bytes) {
      const std::string& text = object.string();
      size_t found = args.positional[0].string().empty() ? size + 1 : 0;
      for (size_t at = FindFirst(text, args.positional[0].string());
           found <= size && at != text.npos;
           at = FindFirst(text, args.positional[0].string(), at + from)) {
        ++found;
      }
      bound = found * grown;
    }
  }
  return budget->CheckText(bound);
}

}  // namespace

bool HasMethod(const Value& object, std::string_view name) {
  if (object.is_string() && name == "format") return true;
  return object.callable() == nullptr && FindMethod(object, name) != nullptr;
}

absl::StatusOr<Value> CallMethod(std::string_view name, const Value& object, const Arguments& args,
                                 Budget* budget) {
  if (object.is_string() && name == "format") {
    if (!object.is_safe()) {
      ASSIGN_OR_RETURN(std::string text, BraceFormat(object.string(), args, budget));
      return Value::Of(std::move(text));
    }
    Arguments escaped = args;
    for (Value& value : escaped.positional) value = Escaped(value);
    for (auto& named : escaped.named) named.second = Escaped(named.second);
    ASSIGN_OR_RETURN(std::string text, BraceFormat(object.string(), escaped, budget));
    return Value::Of(std::move(text), /*safe=*/true);
  }
  const Method* const method = FindMethod(object, name);
  if (method == nullptr) return Fault(object.TypeName(), " has no method '", name, "'");
  RETURN_IF_ERROR(ChargeArguments(args, budget));
  if (object.is_string()) RETURN_IF_ERROR(budget->ChargeText(object.string().size()));
  if (object.is_sequence()) {
    RETURN_IF_ERROR(budget->Charge(std::min(
        object.weight(), args.positional.empty() ? int64_t{1}
                                                 : static_cast<int64_t>(object.list().size()) *
                                                       args.positional[0].weight())));
  }
  if (object.is_dict() && name != "get") {
    RETURN_IF_ERROR(budget->ChargeItems(kItemsOfPair * object.dict().size()));
  }
  RETURN_IF_ERROR(CheckCount(*method, args));
  // Replaced and joined text may be far longer than its parts.
  if (name == "replace" || name == "join") RETURN_IF_ERROR(CheckGrowth(name, object, args, budget));
  return method->call(name, object, args);
}

}  // namespace quire::jinja
