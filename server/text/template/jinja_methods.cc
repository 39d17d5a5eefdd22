// Methods of strings, lists and dicts that chat templates call.
#include "server/text/template/jinja_methods.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/text/template/jinja_filters.h"
#include "server/text/template/jinja_text.h"
#include "server/text/unicode/unicode.h"

namespace quire::jinja {
namespace {

absl::Status Fault(const std::string& reason) { return absl::InvalidArgumentError(reason); }

constexpr std::string_view kMethods[] = {
    "capitalize",   "count",      "endswith", "find",    "get",     "index",
    "isalnum",      "isalpha",    "isdigit",  "islower", "isspace", "isupper",
    "items",        "join",       "keys",     "lower",   "lstrip",  "removeprefix",
    "removesuffix", "replace",    "rfind",    "rsplit",  "rstrip",  "split",
    "splitlines",   "startswith", "strip",    "title",   "upper",   "values"};

bool IsAny(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

absl::StatusOr<std::string> TextArgument(std::string_view method, const Arguments& args,
                                         size_t index) {
  if (index >= args.positional.size() || !args.positional[index].is_string()) {
    return Fault(absl::StrCat(std::string(method), ": argument ", index + 1, " is not a string"));
  }
  return args.positional[index].string();
}

Value ListOf(const std::vector<std::string_view>& parts) {
  List out;
  for (const std::string_view part : parts) out.push_back(Value::Of(std::string(part)));
  return Value::Of(std::move(out));
}

absl::StatusOr<Value> StripText(std::string_view name, const std::string& text,
                                const Arguments& args) {
  const Side side = name == "strip" ? Side::kBoth : name == "lstrip" ? Side::kLeft : Side::kRight;
  if (args.positional.empty() || args.positional[0].is_none()) {
    return Value::Of(std::string(Strip(text, side)));
  }
  ASSIGN_OR_RETURN(const std::string characters, TextArgument(name, args, 0));
  return Value::Of(std::string(Strip(text, side, characters)));
}

absl::StatusOr<Value> SplitText(std::string_view name, const std::string& text,
                                const Arguments& args) {
  const Value* separator = args.Find(0, "sep");
  const Value* maximum = args.Find(1, "maxsplit");
  const int64_t limit = maximum == nullptr ? -1 : maximum->AsInt().value_or(-1);
  const bool from_right = name == "rsplit";
  if (separator == nullptr || separator->is_none()) {
    if (from_right && limit >= 0) return Fault("rsplit with a limit needs a separator");
    return ListOf(SplitSpace(text, limit));
  }
  if (!separator->is_string() || separator->string().empty()) {
    return Fault("split needs a separator that is not empty");
  }
  return ListOf(Split(text, separator->string(), limit, from_right));
}

absl::StatusOr<Value> HasAffix(std::string_view name, const std::string& text,
                               const Arguments& args) {
  if (args.positional.size() != 1)
    return Fault(absl::StrCat(std::string(name), " needs one string"));
  const Value& affix = args.positional[0];
  const List alternatives = affix.is_tuple() ? affix.list() : List{affix};
  for (const Value& one : alternatives) {
    if (!one.is_string()) return Fault(absl::StrCat(std::string(name), " needs a string"));
    const bool has =
        name == "startswith" ? text.starts_with(one.string()) : text.ends_with(one.string());
    if (has) return Value::Of(true);
  }
  return Value::Of(false);
}

absl::StatusOr<Value> FindText(std::string_view name, const std::string& text,
                               const Arguments& args) {
  ASSIGN_OR_RETURN(const std::string part, TextArgument(name, args, 0));
  if (name == "count") {
    int64_t count = 0;
    if (part.empty()) return Value::Of(CountCodePoints(text) + 1);
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) {
      ++count;
    }
    return Value::Of(count);
  }
  const size_t at = name == "rfind" ? text.rfind(part) : text.find(part);
  if (at == text.npos) {
    if (name == "index") return Fault("index: the text is not there");
    return Value::Of(int64_t{-1});
  }
  return Value::Of(CountCodePoints(std::string_view(text).substr(0, at)));
}

// isalpha and the like: the text is not empty and every code point passes.
bool AllOf(std::string_view name, const std::string& text) {
  if (name == "islower" || name == "isupper") {
    const std::string lower = ToLower(text), upper = ToUpper(text);
    return lower != upper && text == (name == "islower" ? lower : upper);
  }
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeUtf8(text.data() + at);
    const CharClass kind = ClassOf(CharClasses(), c.value);
    const bool letter = kind == CharClass::kLetter, number = kind == CharClass::kNumber;
    const bool passes = name == "isspace"   ? IsPythonSpace(c.value)
                        : name == "isdigit" ? number
                        : name == "isalpha" ? letter
                                            : letter || number;
    if (!passes) return false;
    at += c.size;
  }
  return !text.empty();
}

absl::StatusOr<Value> ReplaceText(const std::string& text, const Arguments& args) {
  ASSIGN_OR_RETURN(const std::string from, TextArgument("replace", args, 0));
  ASSIGN_OR_RETURN(const std::string to, TextArgument("replace", args, 1));
  const Value* count = args.Find(2, "count");
  return Value::Of(Replace(text, from, to, count == nullptr ? -1 : count->AsInt().value_or(-1)));
}

absl::StatusOr<Value> CallOnText(std::string_view name, const std::string& text,
                                 const Arguments& args) {
  if (IsAny(name, {"strip", "lstrip", "rstrip"})) return StripText(name, text, args);
  if (IsAny(name, {"split", "rsplit"})) return SplitText(name, text, args);
  if (IsAny(name, {"startswith", "endswith"})) return HasAffix(name, text, args);
  if (IsAny(name, {"find", "rfind", "index", "count"})) return FindText(name, text, args);
  if (name.starts_with("is")) return Value::Of(AllOf(name, text));
  if (name == "upper") return Value::Of(ToUpper(text));
  if (name == "lower") return Value::Of(ToLower(text));
  if (name == "title") return Value::Of(Title(text));
  if (name == "capitalize") return Value::Of(Capitalize(text));
  if (name == "replace") return ReplaceText(text, args);
  if (name == "join") {
    if (args.positional.size() != 1) return Fault("join needs one list");
    return ApplyFilter("join", args.positional[0], Arguments{{Value::Of(text)}, {}});
  }
  if (name == "splitlines") {
    const Value* keep = args.Find(0, "keepends");
    return ListOf(SplitLines(text, keep != nullptr && keep->IsTrue()));
  }
  if (name == "removeprefix" || name == "removesuffix") {
    ASSIGN_OR_RETURN(const std::string affix, TextArgument(name, args, 0));
    if (name == "removeprefix") {
      return Value::Of(text.starts_with(affix) ? text.substr(affix.size()) : text);
    }
    return Value::Of(text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text);
  }
  return Fault(absl::StrCat("a string has no method '", std::string(name), "'"));
}

absl::StatusOr<Value> CallOnDict(std::string_view name, const Value& dict, const Arguments& args) {
  if (name == "get") {
    if (args.positional.empty()) return Fault("get needs a key");
    const Value* member =
        args.positional[0].is_string() ? dict.Find(args.positional[0].string()) : nullptr;
    if (member != nullptr) return *member;
    return args.positional.size() > 1 ? args.positional[1] : Value::MakeNone();
  }
  List out;
  for (const auto& [key, value] : dict.dict()) {
    if (name == "keys") {
      out.push_back(Value::Of(key));
    } else if (name == "values") {
      out.push_back(value);
    } else if (name == "items") {
      out.push_back(Value::Of(List{Value::Of(key), value}, /*tuple=*/true));
    } else {
      return Fault(absl::StrCat("a dict has no method '", std::string(name), "'"));
    }
  }
  return Value::Of(std::move(out));
}

absl::StatusOr<Value> CallOnList(std::string_view name, const Value& list, const Arguments& args) {
  if ((name != "index" && name != "count") || args.positional.size() != 1) {
    return Fault(absl::StrCat("a list has no method '", std::string(name), "' here"));
  }
  int64_t count = 0;
  for (size_t i = 0; i < list.list().size(); ++i) {
    if (!Equal(list.list()[i], args.positional[0])) continue;
    if (name == "index") return Value::Of(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") return Fault("index: the item is not there");
  return Value::Of(count);
}

}  // namespace

bool IsMethod(std::string_view name) {
  return std::ranges::find(kMethods, name) != std::end(kMethods);
}

absl::StatusOr<Value> CallMethod(std::string_view name, const Value& object,
                                 const Arguments& args) {
  if (object.is_string()) return CallOnText(name, object.string(), args);
  if (object.is_dict() && !object.is_namespace()) return CallOnDict(name, object, args);
  if (object.is_list()) return CallOnList(name, object, args);
  return Fault(absl::StrCat(object.TypeName(), " has no method '", std::string(name), "'"));
}

}  // namespace quire::jinja
