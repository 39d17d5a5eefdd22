// Functions of the environment, as jinja2 and transformers define them.
#include "server/text/jinja/functions.h"

#include <ctime>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
#include "server/text/jinja/values/callable.h"
#include "server/text/jinja/values/charges.h"
#include "server/text/jinja/values/dict.h"
#include "server/text/jinja/values/fault.h"
#include "server/text/jinja/values/format.h"

namespace quire::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as in jinja2's sandbox
constexpr size_t kMaxTimeFormat = 1024;

absl::StatusOr<Value> MakeRange(const Arguments& args) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t count = args.positional.size();
  if (count < 1 || count > 3 || !args.named.empty()) {
    return Fault("range needs one to three integers");
  }
  for (size_t i = 0; i < count; ++i) {
    if (!args.positional[i].AsInt()) return Fault("range needs integers");
    bounds[count == 1 ? 1 : i] = *args.positional[i].AsInt();
  }
  const int64_t step = bounds[2];
  if (step == 0) return Fault("range with step 0");
  List out;
  for (int64_t i = bounds[0]; step > 0 ? i < bounds[1] : i > bounds[1];) {
    if (static_cast<int64_t>(out.size()) >= kMaxRange) {
      return Fault("range of more than ", kMaxRange);
    }
    out.push_back(Value::Of(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::Of(std::move(out), Value::Order::kRange);
}

// dict(mapping or pairs, name=value ...), which namespace takes too.
absl::StatusOr<Dict> MakeDict(const std::string& name, const Arguments& args) {
  Dict out;
  if (args.positional.size() > 1) return Fault(name, " needs at most one mapping");
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is_dict()) {
      out = from.dict();
    } else {
      ASSIGN_OR_RETURN(const List pairs, Iterate(from));
      for (const Value& pair : pairs) {
        ASSIGN_OR_RETURN(List parts, Iterate(pair));
        if (parts.size() != 2 || !out.Set(std::move(parts[0]), std::move(parts[1]))) {
          return Fault(name, " needs pairs of a key and a value");
        }
      }
    }
  }
  for (const auto& [key, value] : args.named) out.Set(key, value);
  for (const auto& [key, value] : out) RETURN_IF_ERROR(CheckStorable(value));
  return out;
}

// strftime of a datetime without a zone: %f is its microseconds, %z and %Z are empty.
absl::StatusOr<Value> FormatTime(const Arguments& args, absl::Time now) {
  if (args.positional.size() + args.named.size() != 1) return Fault("strftime_now needs a format");
  const Value* given = args.Find(0, "format");
  if (given == nullptr || !given->is_string()) return Fault("strftime_now needs a format");
  if (given->string().size() > kMaxTimeFormat) {
    return Fault("strftime_now: a format of more than ", kMaxTimeFormat, " bytes");
  }
  const absl::TimeZone zone = absl::LocalTimeZone();
  std::string format;
  for (size_t i = 0; i < given->string().size(); ++i) {
    const char c = given->string()[i];
    const char kind = i + 1 < given->string().size() ? given->string()[i + 1] : '\0';
    if (c != '%' || (kind != 'f' && kind != 'z' && kind != 'Z')) {
      format += c;
      if (c == '%' && kind == '%') format += kind;
      if (c == '%' && kind == '%') ++i;
      continue;
    }
    const int64_t micros = absl::ToInt64Microseconds(now - absl::FromUnixSeconds(0)) % 1'000'000;
    if (kind == 'f') absl::StrAppendFormat(&format, "%06d", (micros + 1'000'000) % 1'000'000);
    ++i;
  }
  const std::tm parts = absl::ToTM(now, zone);
  char text[16 * kMaxTimeFormat];
  const size_t size = strftime(text, sizeof text, format.c_str(), &parts);
  return Value::Of(std::string(text, size));
}

}  // namespace

std::vector<std::pair<std::string, Value>> EnvironmentFunctions() {
  std::vector<std::pair<std::string, Value>> out;
  for (const char* name : {"range", "dict", "namespace", "raise_exception", "strftime_now"}) {
    auto function = std::make_shared<Callable>();
    function->name = name;
    out.emplace_back(name, Value::Of(std::shared_ptr<const Callable>(std::move(function))));
  }
  return out;
}

absl::StatusOr<Value> CallFunction(const std::string& name, const Arguments& args, absl::Time now) {
  if (name == "range") return MakeRange(args);
  if (name == "strftime_now") return FormatTime(args, now);
  if (name == "raise_exception") {
    const Value* message = args.Find(0, "message");
    if (message == nullptr) return Fault("raise_exception needs a message");
    return absl::AbortedError(ToString(*message));
  }
  ASSIGN_OR_RETURN(Dict members, MakeDict(name, args));
  return name == "dict" ? Value::Of(std::move(members)) : Value::MakeNamespace(std::move(members));
}

}  // namespace quire::jinja
